// A list that is quiet: a row moves only if its severity changes, at most every 10 s, and never while somebody is in
// the list with the pointer, the focus, a selection or a finger.

export const MOVES_MS = 10_000;
const SEVERITY = { ERR: 3, WARN: 2, UNKNOWN: 1, OK: 0 };

// The keys of `wanted` in a new order. `before` and `wanted` are lists of { key, status }. Rows of the same status as
// before keep their order; others come where the wanted order has them.
export function arrange(before, wanted) {
  const place = new Map(wanted.map((row, at) => [row.key, { ...row, at }]));
  const arranged = before.filter((row) => place.get(row.key)?.status === row.status).map((row) => place.get(row.key));
  const kept = new Set(arranged.map((row) => row.key));
  for (const row of place.values()) {
    if (kept.has(row.key)) continue;
    const isAfter = (other) => SEVERITY[other.status] < SEVERITY[row.status] || (other.status === row.status && other.at > row.at);
    const at = arranged.findIndex(isAfter);
    arranged.splice(at < 0 ? arranged.length : at, 0, row);
  }
  return arranged.map((row) => row.key);
}

// After a touch, browsers keep the place of the finger as that of a pointer.
let touched_ms = -MOVES_MS;
let isTouched = false;
for (const kind of ["pointerdown", "pointermove"]) {
  addEventListener(kind, ({ pointerType }) => {
    isTouched = pointerType === "touch";
    if (isTouched) touched_ms = performance.now();
  }, { passive: true });
}

export function isIn(region) {
  const { anchorNode, isCollapsed } = getSelection();
  return (
    (!isTouched && region.matches(":hover")) ||
    region.contains(document.activeElement) ||
    (!isCollapsed && region.contains(anchorNode)) ||
    performance.now() - touched_ms < MOVES_MS
  );
}

export class QuietList {
  constructor(region) {
    Object.assign(this, { region, id: null, rows: [], moved_ms: 0 });
  }

  // The rows to show. `id` says which list it is: another one is shown as it is wanted. While nothing may move, rows
  // that are not wanted any more stay with `isGone`, and `waiting` counts those that are to come or to move.
  arrange(id, wanted, { isBySeverity }) {
    const known = new Map(wanted.map((row) => [row.key, row]));
    const shown = this.rows;
    const keys = id === this.id && isBySeverity ? arrange(shown, wanted) : wanted.map((row) => row.key);
    const isSame = id === this.id && keys.join("\0") === shown.map((row) => row.key).join("\0");
    const isPaused = id === this.id && isIn(this.region);
    const isHeld = id === this.id && (isPaused || performance.now() - this.moved_ms < MOVES_MS);
    if (isHeld && !isSame) {
      const rows = shown.map((row) => known.get(row.key) ?? { ...row, isGone: true });
      const present = new Set(shown.map((row) => row.key));
      const moves = wanted.filter((row) => !present.has(row.key) || shown.find((each) => each.key === row.key).status !== row.status);
      return { rows, isPaused, waiting: moves.length };
    }
    if (!isSame) this.moved_ms = id === this.id ? performance.now() : -MOVES_MS;
    Object.assign(this, { id, rows: keys.map((key) => known.get(key)) });
    return { rows: this.rows, isPaused, waiting: 0 };
  }
}
