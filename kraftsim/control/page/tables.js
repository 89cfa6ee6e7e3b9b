// The tables behind tabs: transactions, producers, blocks of producer ids, groups, the quorum, and
// the events as text.

import { brokerColour, byId, clock, count, element, keep, setAttribute, setText, span } from "./elements.js";
import { familyOf } from "./lanes.js";

const EVENTS_MAX = 500;
const events = [];
let eventTrouble = "";
let last = null;
let chosen = "transactions";

const none = (value) => value === null || value === undefined;
const chip = (text, tone) => element("span", { class: "chip", "data-tone": tone, text });

// name of a tab -> its title, its columns, its rows (a key and cells each), and what an empty one says
const TABS = {
  transactions: {
    title: "Transactions",
    columns: ["transactional id", "state", "producer id", "epoch", "coordinator", "age", "partitions"],
    rows: ({ transactions, taken_ms }) =>
      transactions.map((each) => {
        const isOpen = /Ongoing|Prepare/.test(each.state);
        const age = isOpen && !none(each.started_ms) ? taken_ms - each.started_ms : null;
        const isLate = age !== null && !none(each.timeout_ms) && age > each.timeout_ms;
        const tone = isLate ? "bad" : { Ongoing: "info", CompleteCommit: "good", CompleteAbort: "warn", Empty: "none" }[each.state] ?? "busy";
        return [each.transactional_id, [each.transactional_id, chip(each.state, tone), number(each.producer_id), number(each.producer_epoch), broker(each.coordinator), age === null ? "" : span(age), each.partitions.join(", ")]];
      }),
    size: ({ transactions }) => transactions.filter((each) => /Ongoing|Prepare/.test(each.state)).length,
    empty: "No transactional id so far.",
  },
  producers: {
    title: "Producers",
    columns: ["partition", "producer id", "epoch", "last sequence", "coordinator epoch", "open since offset", "last batch"],
    rows: ({ producers, taken_ms }) =>
      producers.map((each) => [
        `${each.topic}-${each.partition}-${each.producer_id}`,
        [`${each.topic}-${each.partition}`, number(each.producer_id), number(each.producer_epoch), number(each.last_sequence), number(each.coordinator_epoch), none(each.current_transaction_start_offset) ? "" : chip(String(each.current_transaction_start_offset), "info"), none(each.last_timestamp_ms) ? "" : `${span(taken_ms - each.last_timestamp_ms)} ago`],
      ]),
    size: ({ producers }) => new Set(producers.map((each) => each.producer_id)).size,
    empty: "No producer has an id so far.",
  },
  blocks: {
    title: "Blocks of ids",
    columns: ["first", "last", "broker", "returned to clients", "highest", "allocated by"],
    rows: ({ blocks }) =>
      [...blocks].reverse().map((each) => {
        const size = each.last_producer_id - each.first_producer_id + 1;
        return [
          `${each.first_producer_id}-${each.broker_id}`,
          [number(each.first_producer_id), number(each.last_producer_id), broker(each.broker_id), bar(each.returned_count, size, brokerColour(each.broker_id)), number(each.highest_returned), each.allocated_by],
        ];
      }),
    size: ({ blocks }) => blocks.length,
    empty: "No block was allocated so far.",
  },
  groups: {
    title: "Groups",
    columns: ["group", "state", "type", "members", "coordinator", "protocol"],
    rows: ({ groups }) =>
      groups.map((each) => [
        each.group_id,
        [each.group_id, each.state ? chip(each.state, { Stable: "good", Empty: "none", Dead: "bad" }[each.state] ?? "busy") : "", each.type, number(each.member_count), broker(each.coordinator), each.protocol_type],
      ]),
    size: ({ groups }) => groups.length,
    empty: "No group so far.",
  },
  quorum: {
    title: "Quorum",
    columns: ["replica", "role", "log end", "lag", "caught up", "directory"],
    rows: ({ quorum }) =>
      (quorum?.replicas ?? []).map((each) => [
        `${each.node_id}-${each.directory_id ?? ""}`,
        [nodeName(each.node_id), chip(each.node_id === quorum.leader ? `leader, epoch ${quorum.leader_epoch}` : each.is_voter ? "voter" : "observer", each.node_id === quorum.leader ? "good" : each.is_voter ? "info" : "none"), number(each.log_end_offset), none(each.lag) ? "" : each.lag ? chip(count(each.lag), each.lag > 100 ? "bad" : "warn") : number(0), none(each.caught_up_ms) ? "never" : `${span(each.caught_up_ms)} ago`, (each.directory_id ?? "").slice(0, 8)],
      ]),
    size: ({ quorum }) => quorum?.replicas.filter((each) => each.is_voter).length ?? 0,
    empty: "No metadata quorum answered.",
  },
  events: {
    title: "Events",
    columns: ["time", "node", "event", "what"],
    rows: () => events.slice(-200).reverse().map((each) => [each.key, [clock(each.at), each.node, mark(each.kind), each.text]]),
    size: () => null,
    empty: "No event so far.",
  },
};

const number = (value) => element("span", { class: "number", text: none(value) ? "–" : String(value) });
const mark = (kind) => element("span", { class: "key", "data-family": familyOf(kind), text: kind });
const broker = (id) => element("span", { class: "key broker", vars: { "--own": brokerColour(id) }, text: String(id) });
const nodeName = (id) => last?.nodes.find((each) => each.node_id === id)?.name ?? String(id);
const bar = (value, size, colour) => element("span", { class: "bar", vars: { "--own": colour, "--share": `${Math.max(value ? 1.5 : 0, (100 * value) / size)}%` } }, element("i"), element("b", { text: `${count(value)} of ${count(size)}` }));

export function beginTables() {
  const tabs = byId("tabs");
  const names = Object.keys(TABS);
  tabs.append(
    ...names.map((name) =>
      element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "table", on: { click: () => choose(name) } }, element("span", { text: TABS[name].title }), element("span", { class: "size" })),
    ),
  );
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -names.length, End: names.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const place = Math.min(names.length - 1, Math.max(0, names.indexOf(chosen) + step));
    choose(names[place]);
    byId(`tab-${names[place]}`).focus();
  });
  choose(chosen);
}

function choose(name) {
  chosen = name;
  byId("table").replaceChildren();
  byId("table").keptElements = undefined;
  paint();
}

export function noteEvent(event) {
  events.push({ key: event.key, at: event.at, node: event.node, kind: event.kind, text: event.text });
  if (events.length > EVENTS_MAX) events.shift();
}

export function noteEventTrouble(text) {
  eventTrouble = text;
}

export function showTables(snapshot) {
  last = snapshot;
  paint();
}

function paint() {
  for (const [name, tab] of Object.entries(TABS)) {
    const button = byId(`tab-${name}`);
    setAttribute(button, "aria-selected", name === chosen ? "true" : "false");
    setAttribute(button, "tabindex", name === chosen ? "0" : "-1");
    const size = last === null ? null : tab.size(last);
    setText(button.querySelector(".size"), size === null ? "" : String(size));
  }
  const box = byId("table");
  setAttribute(box, "aria-labelledby", `tab-${chosen}`);
  if (last === null) return;
  const tab = TABS[chosen];
  const rows = tab.rows(last);
  const trouble = chosen === "events" ? eventTrouble : (last.missing[chosen] ?? "");
  if (box.querySelector("table") === null) {
    box.append(element("p", { class: "soft none" }), element("table", {}, element("thead", {}, element("tr", {}, ...tab.columns.map((text) => element("th", { scope: "col", text })))), element("tbody")));
  }
  const message = rows.length === 0 ? trouble || tab.empty : trouble;
  setText(box.querySelector("p"), message);
  box.querySelector("p").hidden = message === "";
  box.querySelector("table").hidden = rows.length === 0;
  keep(
    box.querySelector("tbody"),
    rows,
    ([key]) => key,
    () => element("tr", {}, ...tab.columns.map(() => element("td"))),
    (row, [, cells]) => cells.forEach((cell, index) => {
      const place = row.children[index];
      if (cell instanceof Element) {
        if (place.firstElementChild === null || !place.firstElementChild.isEqualNode(cell)) place.replaceChildren(cell);
      } else setText(place, String(cell ?? ""));
    }),
  );
}
