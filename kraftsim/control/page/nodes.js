// The nodes beside their lanes: what they are, and the verbs that act on them.

import { call } from "./connection.js";
import { brokerColour, byId, element, keep, setAttribute, setText, span, toast } from "./elements.js";
import { addMark, lastCondition, noteCondition, now, setNames } from "./lanes.js";

// which verbs a node offers in which condition
const OFFERED = {
  up: ["kill", "pause", "cut", "restart"],
  starting: ["kill", "restart"],
  paused: ["resume", "kill"],
  down: ["restart"],
  unknown: ["kill", "restart"],
};
const LABELS = { kill: "Kill", pause: "Pause", resume: "Resume", restart: "Restart", cut: "Isolate", heal: "Heal" };
const MEANINGS = {
  kill: "SIGKILL: no clean shutdown, the disk keeps what the operating system has",
  pause: "SIGSTOP: connections stay open and get no response",
  resume: "SIGCONT: go on after a pause",
  restart: "Restart on its disk; a node that is up is stopped cleanly first",
  cut: "Cut all links of this node until it is healed",
  heal: "End the conditions of all links of this node",
};
const busy = new Set();
const marked = new Set();

async function act(verb, node) {
  const key = `${verb} ${node}`;
  if (busy.has(key)) return;
  busy.add(key);
  paint();
  const started = performance.now();
  addMark({ at: now(), node, kind: "verb", text: `${LABELS[verb]}, from this page` });
  try {
    if (verb === "cut") await call("POST", "/v1/network/cut", { target: node });
    else if (verb === "heal") await call("POST", "/v1/network/heal", { nodes: [node] });
    else await call("POST", `/v1/nodes/${encodeURIComponent(node)}/${verb}`);
    toast(`${LABELS[verb]} ${node}: done in ${span(performance.now() - started)}`);
  } catch (error) {
    toast(`${LABELS[verb]} ${node}: ${error.message}`, true);
  } finally {
    busy.delete(key);
    paint();
    dispatchEvent(new Event("kraftsim-changed"));
  }
}

let last = null;

export function showNodes(snapshot) {
  last = snapshot;
  for (const node of snapshot.nodes) {
    const before = lastCondition(node.name);
    // a killed node writes no event: its log just ends
    for (const { incarnation, ended_ms } of node.former) {
      if (marked.has(`${node.name} ${incarnation}`)) continue;
      marked.add(`${node.name} ${incarnation}`);
      noteCondition(node.name, "down", ended_ms);
    }
    const isKnown = before === null && node.since_ms !== null && node.since_ms !== undefined;
    const at = isKnown ? Math.min(node.since_ms, snapshot.taken_ms) : snapshot.taken_ms;
    noteCondition(node.name, node.condition, at);
  }
  setNames(snapshot.nodes.map((node) => node.name));
  paint();
}

function isCut(snapshot, node) {
  return snapshot.network.some(({ link }) => link.split(/<>|>/).some((end) => end === node.name));
}

function paint() {
  if (last === null) return;
  const verbs = new Map((last.verbs ?? []).map((verb) => [verb.verb, verb]));
  const led = new Map();
  for (const topic of last.topics) for (const { leader } of topic.partitions) if (leader !== null && leader !== undefined) led.set(leader, (led.get(leader) ?? 0) + 1);
  keep(
    byId("nodes"),
    last.nodes,
    (node) => node.name,
    (node) =>
      element(
        "li",
        { class: "node", "data-node": node.name },
        element("span", { class: "dot" }),
        element("span", { class: "who" }, element("strong"), element("span", { class: "what" })),
        element("span", { class: "verbs", role: "group", "aria-label": `Act on ${node.name}` }),
      ),
    (row, node) => paintNode(row, node, verbs, led),
  );
}

function paintNode(row, node, verbs, led) {
  setAttribute(row, "data-condition", node.condition);
  const isBroker = node.role.includes("broker");
  const dot = row.querySelector(".dot");
  setAttribute(dot, "title", node.condition);
  if (isBroker) dot.style.setProperty("--own", brokerColour(node.node_id));
  const name = row.querySelector("strong");
  setText(name, `${node.is_active_controller ? "★ " : ""}${node.name}`);
  setAttribute(name, "title", node.is_active_controller ? "the active controller" : null);
  const facts = [node.condition];
  if (node.condition === "up" && node.is_fenced) facts.push("fenced");
  if (node.is_active_controller) facts.push("active");
  if (isBroker) facts.push(`leads ${led.get(node.node_id) ?? 0}`);
  if (node.release) facts.push(node.release);
  setText(row.querySelector(".what"), facts.join(" · "));
  const more = [node.address, node.incarnation ? `start ${node.incarnation}` : null].filter(Boolean);
  setAttribute(row.querySelector(".what"), "title", [...facts, ...more].join(" · "));
  const offered = [...(OFFERED[node.condition] ?? [])];
  if (isCut(last, node)) offered.splice(offered.includes("cut") ? offered.indexOf("cut") : offered.length, offered.includes("cut") ? 1 : 0, "heal");
  keep(
    row.querySelector(".verbs"),
    last.verbs?.length ? offered : [],
    (verb) => verb,
    (verb) => element("button", { type: "button", class: verb === "kill" ? "small danger" : "small", "data-verb": verb, text: LABELS[verb], on: { click: ({ currentTarget }) => currentTarget.hasAttribute("aria-disabled") || act(verb, node.name) } }),
    (button, verb) => {
      const known = verbs.get(verb);
      const isPossible = known?.is_possible ?? false;
      const isBusy = busy.has(`${verb} ${node.name}`);
      // aria-disabled keeps it in the order of focus, so that the reason can be read
      setAttribute(button, "aria-disabled", !isPossible || isBusy ? "true" : null);
      setAttribute(button, "title", isPossible ? MEANINGS[verb] : known?.reason || "this cluster does not have it");
      setAttribute(button, "aria-label", `${LABELS[verb]} ${node.name}`);
      setAttribute(button, "aria-busy", isBusy ? "true" : null);
    },
  );
}
