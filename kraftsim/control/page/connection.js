// The connection to the API: the token, calls, and the stream of events.
//
// The token comes from the fragment of the address, which browsers do not send, and is taken out of
// it at once. It stays in this tab (sessionStorage), and never goes into a query.

import { byId } from "./elements.js";

const STORED = "kraftsim-token";
let token = null;
let asking = null;

function fromFragment() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) history.replaceState(null, "", location.pathname);
  return given;
}

export function beginWithToken() {
  token = fromFragment() ?? sessionStorage.getItem(STORED);
  if (token !== null) sessionStorage.setItem(STORED, token);
  addEventListener("hashchange", () => {
    const given = fromFragment();
    if (given !== null) {
      token = given;
      sessionStorage.setItem(STORED, given);
      byId("ask").close();
    }
  });
}

function askForToken(trouble) {
  if (trouble || asking === null) byId("ask-trouble").textContent = trouble;
  asking ??= new Promise((answer) => {
    const dialog = byId("ask");
    byId("ask-token").value = "";
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => {
        if (byId("ask-token").value) token = byId("ask-token").value.trim();
        if (token !== null) sessionStorage.setItem(STORED, token);
        asking = null;
        answer();
      },
      { once: true },
    );
  });
  return asking;
}

export class CallFailed extends Error {
  constructor(status, text, hint) {
    super(hint ? `${text} (${hint})` : text);
    this.status = status;
  }
}

async function authorized(path, options) {
  for (;;) {
    if (token === null) await askForToken("");
    if (token === null) continue;
    const used = token;
    const response = await fetch(path, {
      ...options,
      headers: { ...options.headers, authorization: `Bearer ${used}` },
      cache: "no-store",
      credentials: "omit",
    });
    const isRefused = response.status === 401 || (response.status === 403 && (await isWrongToken(response)));
    if (!isRefused) return response;
    if (token === used) {
      token = null;
      sessionStorage.removeItem(STORED);
    }
    if (token === null) await askForToken("The server refused this token: a cluster that was started again has a new one.");
  }
}

async function isWrongToken(response) {
  const text = await response.clone().text();
  return text.includes("token");
}

export async function call(method, path, body) {
  const options = { method, headers: {} };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const response = await authorized(path, options);
  const text = await response.text();
  let parsed = null;
  try {
    parsed = text ? JSON.parse(text) : null;
  } catch {
    parsed = null;
  }
  if (!response.ok) throw new CallFailed(response.status, parsed?.error ?? `${method} ${path} failed with ${response.status}`, parsed?.hint);
  return parsed;
}

// Server-sent events by fetch, for EventSource cannot send a header. `take(event)` gets each one; a
// connection that ends is opened again behind the last event that arrived.
export async function follow(path, take, report) {
  let last = null;
  let pause = 500;
  for (;;) {
    try {
      const headers = { accept: "text/event-stream" };
      if (last !== null) headers["last-event-id"] = last;
      const response = await authorized(path, { method: "GET", headers });
      if (response.status === 409 || response.status === 404) {
        const known = await response.json().catch(() => ({}));
        report(known.error ?? "this cluster has no events");
        return;
      }
      if (!response.ok) throw new CallFailed(response.status, "the events did not come");
      report("");
      pause = 500;
      last = await readStream(response.body, take, last);
    } catch (error) {
      if (error instanceof CallFailed && error.status === 400) last = null;
      report(`events: ${error.message}`);
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 10000);
  }
}

async function readStream(body, take, last) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return last;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = fieldsOf(block);
        if (fields.id !== undefined) last = fields.id;
        if (fields.data !== undefined) {
          try {
            take(JSON.parse(fields.data));
          } catch (error) {
            console.warn("an event that cannot be read", error);
          }
        }
      }
    }
  } catch (error) {
    if (last === null) throw error;
    return last;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function fieldsOf(block) {
  const fields = {};
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    fields[name] = name === "data" && fields.data !== undefined ? `${fields.data}\n${value}` : value;
  }
  return fields;
}
