// Requests to the API, and its stream of events.

import { byId } from "./build.js";

const LATE_MS = 15_000;
const AGAIN_MS = 60_000;
const KINDS = ["status_changed", "group_appeared", "group_deleted", "rebalanced", "members_changed", "offsets_reset", "records_lost",
  "topic_deleted", "topic_recreated", "expected_group_absent", "expected_group_back", "blind", "recovered", "more_events"];
const MOST_EVENTS = 1000;

export const events = [];
let cursor = null;
let stream = null;
let opened_ms = -AGAIN_MS; // by performance.now(): the clock may be set

export async function fetchJson(path) {
  // Relative: koff may be behind a prefix.
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { headers, signal: AbortSignal.timeout(LATE_MS) });
  } catch (error) {
    throw new Error(`koff does not respond (${error.message})`);
  }
  if (response.status === 401) byId("login").hidden = false;
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  const text = body?.detail ?? (response.ok ? "what responds is not koff: perhaps a proxy between" : `koff responds with ${response.status}`);
  throw Object.assign(new Error(text), { isResponse: true });
}

export const clusterPath = (cluster) => `api/v1/clusters/${encodeURIComponent(cluster)}`;

function add(event) {
  if (events.some((each) => each.id === event.id)) return;
  events.push(event);
  if (events.length > MOST_EVENTS) events.shift();
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// The events that are new. While the stream is open, it brings them.
export async function fetchEvents() {
  if (isLive()) return;
  const query = new URLSearchParams({ limit: 1000 });
  if (cursor) query.set("since", cursor);
  const found = await fetchJson(`api/v1/events?${query}`).catch(() => null); // koff may serve no events
  if (!found) return;
  found.events.forEach(add);
  cursor = found.events.at(-1)?.id ?? cursor;
}

export function isLive() {
  return stream?.readyState === EventSource.OPEN;
}

// Opens the stream, unless it is open. A browser cannot send a token with it: then the page polls.
export function openStream(onEvent) {
  if ((stream && stream.readyState !== EventSource.CLOSED) || sessionStorage.getItem("token")) return;
  if (performance.now() - opened_ms < AGAIN_MS) return; // koff serves no events, or a proxy lets no stream through
  opened_ms = performance.now();
  const address = new URL("api/v1/events", document.baseURI);
  if (cursor) address.searchParams.set("since", cursor);
  stream = new EventSource(address);
  for (const kind of KINDS) {
    stream.addEventListener(kind, (message) => {
      const event = parse(message.data);
      if (!event) return;
      cursor = event.id;
      add(event);
      onEvent();
    });
  }
}

// A page that nobody sees needs no stream: a client may have only so many.
export function closeStream() {
  stream?.close();
  stream = null;
  opened_ms = -AGAIN_MS;
}
