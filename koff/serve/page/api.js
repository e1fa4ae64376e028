// Requests to the API, and its stream of events.

import { byId } from "./dom.js";

const LATE_MS = 15_000;
const AGAIN_MS = 60_000;
const KINDS = ["incident_opened", "incident_raised", "incident_closed", "group_appeared", "group_deleted", "rebalanced",
  "members_changed", "offsets_reset", "records_skipped", "records_lost", "ahead_of_log", "topic_left", "topic_deleted",
  "topic_recreated", "expected_group_absent", "expected_group_back", "blind", "recovered", "more_events"];
const MOST_EVENTS = 1000;

export const events = [];
let cursor = null;
let hasEvents = false;
let stream = null;
let missing = []; // ids of events that the open stream has yet to bring
const streamed = new Set(); // ids of events that it has brought since the last request
let opened_ms = -AGAIN_MS; // by performance.now(): the clock may be set

const asked = new Set(); // of each request without a response, what ends it

// Ends all requests: what they would bring is not wanted any more. On a slow network, they would delay what is.
export function abortRequests() {
  for (const controller of asked) controller.abort();
}

export async function fetchJson(path) {
  // Relative: koff may be behind a prefix.
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error(`not within ${LATE_MS / 1000} s`)), LATE_MS);
  asked.add(controller);
  let response, text;
  try {
    response = await fetch(new URL(path, document.baseURI), { headers, signal: controller.signal });
    text = await response.text();
  } catch (error) {
    throw new Error(`koff does not respond (${error.message})`);
  } finally {
    clearTimeout(timer);
    asked.delete(controller);
  }
  if (response.status === 401) byId("login").hidden = false;
  const body = parse(text);
  if (response.ok && body !== null) return body;
  const why = body?.detail ?? (response.ok ? "what responds is not koff: perhaps a proxy between" : `koff responds with ${response.status}`);
  throw Object.assign(new Error(why), { isResponse: true });
}

// The path of an endpoint. Names are in the query: browsers and proxies change a path that has `..` or `%2F` in it.
export const apiPath = (name, params = {}) => `api/v1/${name}?${new URLSearchParams(params)}`;

// Whether the event is new.
function add(event) {
  if (events.some((each) => each.id === event.id)) return false;
  events.push(event);
  if (events.length > MOST_EVENTS) events.shift();
  return true;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Fetches the events since the last call, and returns those that are new: none at the first call. An open stream brings
// them, too, unless it has ended and the browser was not told: the computer slept, or a proxy dropped it. A stream that
// has not brought them until the next call is replaced.
export async function fetchEvents() {
  const query = new URLSearchParams({ limit: 1000 });
  if (cursor) query.set("since", cursor);
  const found = await fetchJson(`api/v1/events?${query}`).catch(() => null); // koff may serve no events
  if (!found) return [];
  if (isLive() && missing.some((id) => !streamed.has(id))) closeStream();
  missing = isLive() ? found.events.map((event) => event.id).filter((id) => !streamed.has(id)) : [];
  streamed.clear();
  const fresh = found.events.filter(add);
  cursor = found.events.at(-1)?.id ?? cursor;
  const isFirst = !hasEvents;
  hasEvents = true;
  return isFirst ? [] : fresh;
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
      streamed.add(event.id);
      onEvent(event, add(event));
    });
  }
}

// A page that nobody sees needs no stream: a client may have only so many.
export function closeStream() {
  stream?.close();
  stream = null;
  opened_ms = -AGAIN_MS;
}
