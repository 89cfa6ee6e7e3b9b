// Faults of requests and conditions of links: what is in force, and the forms that add more.

import { call } from "./connection.js";
import { byId, count, element, keep, setAttribute, setText, span, toast } from "./elements.js";
import { addMark, now } from "./lanes.js";

const ACTIONS = [
  ["error", "answer with an error"], ["drop=request", "drop the request"], ["drop=reply", "drop the reply, served"],
  ["delay=request", "delay the request"], ["delay=reply", "delay the reply"], ["duplicate", "serve it twice"],
  ["reorder=request", "let others pass"], ["disconnect=request", "disconnect before"], ["disconnect=reply", "disconnect after"],
  ["truncate=request", "truncate the request"], ["truncate=reply", "truncate the reply"],
  ["throttle", "throttle_time_ms"], ["blackhole", "black-hole the client"],
];
// the field that an action needs: its name in the text, its label, and a first value
const NEEDS = {
  error: ["error", "Error", "CONCURRENT_TRANSACTIONS"],
  "delay=request": ["delay_ms", "Delay, ms", "500"], "delay=reply": ["delay_ms", "Delay, ms", "500"],
  "truncate=request": ["after_bytes", "Bytes left", "20"], "truncate=reply": ["after_bytes", "Bytes left", "20"],
  throttle: ["throttle_ms", "Throttle, ms", "1000"],
};
const APIS = "* Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit DescribeConfigs AlterPartitionReassignments DescribeProducers DescribeTransactions ListTransactions ConsumerGroupHeartbeat ConsumerGroupDescribe ShareGroupHeartbeat ShareFetch ShareAcknowledge".split(" ");
const ERRORS = "CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_LEADER_OR_FOLLOWER NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE INVALID_PRODUCER_EPOCH PRODUCER_FENCED UNKNOWN_PRODUCER_ID OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED REBALANCE_IN_PROGRESS UNKNOWN_MEMBER_ID ILLEGAL_GENERATION FENCED_INSTANCE_ID FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH OFFSET_OUT_OF_RANGE KAFKA_STORAGE_ERROR THROTTLING_QUOTA_EXCEEDED MESSAGE_TOO_LARGE CORRUPT_MESSAGE UNKNOWN_SERVER_ERROR NETWORK_EXCEPTION STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH POLICY_VIOLATION TOPIC_AUTHORIZATION_FAILED".split(" ");

let verbs = new Map();
let isTextOwn = false;
let announced = new Map();

export function beginFaults() {
  byId("apis").append(...APIS.map((value) => element("option", { value })));
  byId("errors").append(...ERRORS.map((value) => element("option", { value })));
  byId("inject-action").append(...ACTIONS.map(([value, text]) => element("option", { value, text })));
  byId("inject-action").addEventListener("change", () => {
    const [, , value] = NEEDS[byId("inject-action").value] ?? [];
    byId("inject-value").value = value ?? "";
    write();
  });
  for (const id of ["inject-api", "inject-value", "inject-times", "inject-more"]) byId(id).addEventListener("input", write);
  byId("inject-text").addEventListener("input", () => {
    isTextOwn = true;
    setText(byId("inject-trouble"), "");
  });
  byId("inject").addEventListener("submit", inject);
  byId("link").addEventListener("submit", impose);
  byId("end-all").addEventListener("click", () => ask(() => call("DELETE", "/v1/request-faults"), "all faults of requests ended"));
  byId("heal-all").addEventListener("click", () => ask(() => call("POST", "/v1/network/heal", {}), "all links healed"));
  write();
}

// The text is what is sent; the fields above only help to write it.
function write() {
  const action = byId("inject-action").value;
  const [field, label] = NEEDS[action] ?? [];
  byId("inject-value-box").hidden = field === undefined;
  if (field !== undefined) {
    setText(byId("inject-value-name"), label);
    setAttribute(byId("inject-value"), "list", field === "error" ? "errors" : null);
  }
  const words = [byId("inject-api").value.trim() || "*"];
  const value = byId("inject-value").value.trim();
  if (action === "error") words.push(`error=${value}`);
  else {
    words.push(action);
    if (field !== undefined && value) words.push(`${field}=${value}`);
  }
  const times = byId("inject-times").value.trim();
  if (times && times !== "1") words.push(`times=${times}`);
  const more = byId("inject-more").value.trim();
  if (more) words.push(more);
  byId("inject-text").value = words.join(" ");
  isTextOwn = false;
  setText(byId("inject-trouble"), "");
}

async function inject(event) {
  event.preventDefault();
  if (!isTextOwn) write();
  const text = byId("inject-text").value.trim();
  try {
    const made = await call("POST", "/v1/request-faults", { text });
    toast(`Fault ${made.number}: ${made.text}`);
    addMark({ at: now(), node: "*", kind: "request fault", text: `${made.text} begins` });
    dispatchEvent(new Event("kraftsim-changed"));
  } catch (error) {
    setText(byId("inject-trouble"), error.message);
    byId("inject-text").focus();
  }
}

async function impose(event) {
  event.preventDefault();
  const target = byId("link-target").value.trim();
  const latency = byId("link-latency").value.trim();
  if (!target) {
    byId("link-target").focus();
    return;
  }
  if (latency && !/^\d+$/.test(latency)) {
    toast("Latency is a number of milliseconds; nothing is a cut", true);
    byId("link-latency").focus();
    return;
  }
  const what = latency ? `latency ${latency} ms` : "cut";
  await ask(
    () => (latency ? call("POST", "/v1/network/slow", { target, latency_ms: Number(latency) }) : call("POST", "/v1/network/cut", { target })),
    `${target}: ${what}`,
  );
}

async function ask(work, words) {
  try {
    await work();
    toast(words);
    addMark({ at: now(), node: "*", kind: "network", text: words });
    dispatchEvent(new Event("kraftsim-changed"));
  } catch (error) {
    toast(error.message, true);
  }
}

function enable(id, verb) {
  const known = verbs.get(verb);
  const isPossible = known?.is_possible ?? false;
  const button = byId(id);
  button.disabled = !isPossible;
  setAttribute(button, "title", isPossible ? null : known?.reason || "this cluster does not have it");
}

export function showFaults(snapshot) {
  verbs = new Map((snapshot.verbs ?? []).map((verb) => [verb.verb, verb]));
  enable("inject-send", "inject");
  enable("link-send", "cut");
  byId("links").replaceChildren(...["clients<>*", ...snapshot.nodes.flatMap(({ name, role }) => (role.includes("broker") ? [name, `clients<>${name}`, `clients>${name}`] : [name]))].map((value) => element("option", { value })));
  markEffects(snapshot);
  const faults = [...snapshot.request_faults].reverse().slice(0, 50);
  byId("end-all").hidden = !snapshot.request_faults.some((fault) => !fault.is_over);
  keep(byId("faults"), faults.length ? faults : [{ number: 0 }], (fault) => fault.number, createFault, paintFault);
  byId("heal-all").hidden = snapshot.network.length === 0;
  const links = snapshot.network.map((each, index) => ({ ...each, key: `${each.link} ${each.condition} ${index}` }));
  keep(byId("network"), links.length ? links : [{ key: "none" }], (each) => each.key, createLink, (row, each) => {
    if (each.key === "none") setText(row, verbs.get("cut")?.is_possible === false ? `Not possible here: ${verbs.get("cut").reason}` : "All links are as they are.");
    else setText(row.querySelector(".soft"), each.since_ms ? `for ${span(snapshot.taken_ms - each.since_ms)}` : "");
  });
}

function markEffects(snapshot) {
  const counts = new Map(snapshot.request_faults.map((fault) => [fault.number, fault.effects]));
  for (const fault of snapshot.request_faults) {
    const before = announced.get(fault.number) ?? (announced.size === 0 ? fault.effects : 0);
    if (fault.effects <= before) continue;
    const hit = fault.recent[fault.recent.length - 1] ?? "";
    const node = snapshot.nodes.find((each) => hit.endsWith(` at ${each.name}`))?.name ?? "*";
    addMark({ at: snapshot.taken_ms, node, kind: "request fault", text: `${fault.text}: ${hit || `${fault.effects - before} more`}` });
  }
  announced = counts;
}

function createFault(fault) {
  if (fault.number === 0) return element("li", { class: "soft none" });
  return element(
    "li",
    { class: "fault" },
    element("div", { class: "line" }, element("code"), element("button", { type: "button", class: "small", text: "End", "aria-label": `End fault ${fault.number}`, on: { click: () => ask(() => call("DELETE", `/v1/request-faults/${fault.number}`), `fault ${fault.number} ended`) } })),
    element("p", { class: "soft" }),
  );
}

function paintFault(row, fault) {
  if (fault.number === 0) {
    const known = verbs.get("inject");
    setText(row, known && !known.is_possible ? `Not possible here: ${known.reason}` : "None so far.");
    return;
  }
  setAttribute(row, "data-over", fault.is_over || null);
  setText(row.querySelector("code"), fault.text);
  row.querySelector("button").hidden = fault.is_over;
  const hit = fault.recent[fault.recent.length - 1];
  const effect = fault.effects ? `took effect on ${count(fault.effects)} of ${count(fault.matched)} matching requests` : fault.matched ? `${count(fault.matched)} matched, no effect so far` : "no request matched so far";
  setText(row.querySelector("p"), `#${fault.number} · ${fault.is_over ? "over · " : ""}${effect}${hit ? ` · last: ${hit}` : ""}`);
}

function createLink(each) {
  if (each.key === "none") return element("li", { class: "soft none" });
  return element("li", { class: "fault" }, element("div", { class: "line" }, element("code", { text: `${each.link}  ${each.condition}` })), element("p", { class: "soft" }));
}
