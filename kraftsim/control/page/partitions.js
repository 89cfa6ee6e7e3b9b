// Partitions as cells: the colour is the leader's, the dots are the replicas, hollow when they are
// not in sync. A cell opens its details.

import { brokerColour, byId, count, element, keep, setAttribute, setText } from "./elements.js";

let last = null;
let chosen = null;

const isUnder = (partition) => partition.isr.length < partition.replicas.length;
const none = (value) => value === null || value === undefined;

export function beginPartitions() {
  byId("topic-filter").addEventListener("input", paint);
  byId("internal").addEventListener("change", paint);
}

export function showPartitions(snapshot) {
  last = snapshot;
  paint();
}

function paint() {
  if (last === null) return;
  const filter = byId("topic-filter").value.trim().toLowerCase();
  const isWithInternal = byId("internal").checked;
  // internal topics are shown when asked for, or when a partition of them has no leader; last
  const isShown = (topic) => isWithInternal || !topic.is_internal || topic.partitions.some((each) => none(each.leader));
  const shown = last.topics.filter((topic) => isShown(topic) && topic.name.toLowerCase().includes(filter)).sort((one, other) => one.is_internal - other.is_internal);
  const brokers = last.nodes.filter((node) => node.role.includes("broker"));
  keep(
    byId("leaders"),
    brokers,
    (node) => node.node_id,
    (node) => element("span", { class: "key broker", text: String(node.node_id), title: `led by ${node.name}` }),
    (key, node) => key.style.setProperty("--own", brokerColour(node.node_id)),
  );
  const box = byId("topics");
  keep(
    box,
    shown.length ? shown : [{ name: "", isNone: true, partitions: [] }],
    (topic) => topic.name,
    (topic) => (topic.isNone ? element("p", { class: "soft none" }) : element("div", { class: "topic" }, element("h3", {}, element("span", { class: "name" }), element("span", { class: "soft" })), element("div", { class: "cells" }))),
    paintTopic,
  );
  paintDetail();
}

function paintTopic(row, topic) {
  if (topic.isNone) {
    const hidden = last.topics.filter((each) => each.is_internal).length;
    setText(row, last.topics.length === 0 ? (last.missing.topics ?? "No topic so far.") : `No topic matches${hidden ? `; ${hidden} internal topics are hidden` : ""}.`);
    return;
  }
  setText(row.querySelector(".name"), topic.name);
  const records = topic.partitions.reduce((sum, each) => sum + (none(each.high_watermark) ? 0 : each.high_watermark - (each.log_start_offset ?? 0)), 0);
  const under = topic.partitions.filter(isUnder).length;
  const offline = topic.partitions.filter((each) => none(each.leader)).length;
  const facts = [`${count(records)} offsets`];
  if (under) facts.push(`${under} under-replicated`);
  if (offline) facts.push(`${offline} without leader`);
  if (!none(topic.min_insync_replicas) && topic.partitions.some((each) => each.isr.length < topic.min_insync_replicas)) facts.push(`below min ISR ${topic.min_insync_replicas}`);
  setText(row.querySelector("h3 .soft"), facts.join(" · "));
  setAttribute(row, "data-trouble", offline ? "offline" : under ? "under" : null);
  keep(
    row.querySelector(".cells"),
    topic.partitions,
    (partition) => partition.partition,
    (partition) =>
      element(
        "button",
        { type: "button", class: "cell", on: { click: () => choose(topic.name, partition.partition) } },
        element("span", { class: "number" }),
        element("span", { class: "leader" }),
        element("span", { class: "replicas", "aria-hidden": "true" }),
      ),
    (cell, partition) => paintCell(cell, topic, partition),
  );
}

function paintCell(cell, topic, partition) {
  const isOffline = none(partition.leader);
  const isBelow = !none(topic.min_insync_replicas) && partition.isr.length < topic.min_insync_replicas;
  cell.style.setProperty("--own", brokerColour(partition.leader));
  setText(cell.querySelector(".number"), String(partition.partition));
  setText(cell.querySelector(".leader"), isOffline ? "none" : String(partition.leader));
  setAttribute(cell, "data-state", isOffline ? "offline" : isBelow ? "below" : isUnder(partition) ? "under" : "ok");
  const open = !none(partition.high_watermark) && !none(partition.last_stable_offset) && partition.last_stable_offset < partition.high_watermark;
  setAttribute(cell, "data-open", open || null);
  const isChosen = chosen !== null && chosen.topic === topic.name && chosen.partition === partition.partition;
  setAttribute(cell, "aria-pressed", isChosen ? "true" : "false");
  const words = `${topic.name}-${partition.partition}: ${isOffline ? "no leader" : `leader ${partition.leader}, epoch ${partition.leader_epoch ?? "unknown"}`}; in sync ${partition.isr.join(", ") || "none"} of ${partition.replicas.join(", ")}${open ? "; a transaction is open" : ""}`;
  setAttribute(cell, "title", words);
  setAttribute(cell, "aria-label", words);
  keep(
    cell.querySelector(".replicas"),
    partition.replicas,
    (replica) => replica,
    () => element("i"),
    (dot, replica) => {
      dot.style.setProperty("--own", brokerColour(replica));
      setAttribute(dot, "class", partition.isr.includes(replica) ? "in" : "out");
    },
  );
}

function choose(topic, partition) {
  chosen = chosen !== null && chosen.topic === topic && chosen.partition === partition ? null : { topic, partition };
  paint();
}

function paintDetail() {
  const box = byId("partition-detail");
  const topic = last.topics.find((each) => each.name === chosen?.topic);
  const partition = topic?.partitions.find((each) => each.partition === chosen?.partition);
  box.hidden = partition === undefined;
  if (partition === undefined) return;
  const producers = last.producers.filter((each) => each.topic === chosen.topic && each.partition === chosen.partition);
  const facts = [
    ["leader", none(partition.leader) ? "none" : `broker-${partition.leader}`],
    ["leader epoch", partition.leader_epoch ?? "–"],
    ["in sync", partition.isr.join(", ") || "none"],
    ["replicas", partition.replicas.join(", ")],
    ["log start", count(partition.log_start_offset)],
    ["last stable offset", count(partition.last_stable_offset)],
    ["high watermark", count(partition.high_watermark)],
    ["min in sync", topic.min_insync_replicas ?? "–"],
    ["producers", count(producers.length)],
    ["open transactions", count(producers.filter((each) => !none(each.current_transaction_start_offset)).length)],
  ];
  box.replaceChildren(
    element("h3", { text: `${chosen.topic}-${chosen.partition}` }),
    element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: String(value) })))),
  );
}
