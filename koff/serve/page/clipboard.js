// Copies a text, also where the browser has no clipboard for the page.

import { element } from "./dom.js";

export async function copy(text) {
  // Without TLS there is no such clipboard, and the browser may forbid it.
  if (await navigator.clipboard?.writeText(text).then(() => true, () => false)) return;
  const field = element("textarea", { value: text, ariaLabel: "copied" });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (!isCopied) throw new Error("not copied");
}
