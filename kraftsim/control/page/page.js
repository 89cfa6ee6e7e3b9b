// Asks for the state once a second, follows the events, and passes both on to the panels.

import { beginWithToken, call, follow } from "./connection.js";
import { byId, clock, count, element, keep, setAttribute, setText, span, toast } from "./elements.js";
import { beginFaults, showFaults } from "./faults.js";
import { addMark, beginLanes, drawLegend, due, KINDS, noteCondition, now, setServerTime, setWindow } from "./lanes.js";
import { showNodes } from "./nodes.js";
import { beginPartitions, showPartitions } from "./partitions.js";
import { beginTables, noteEvent, noteEventTrouble, showTables } from "./tables.js";

const POLL_MS = 1000;
const WINDOWS = [["fit", 0], ["1 min", 60000], ["5 min", 300000], ["15 min", 900000], ["1 h", 3600000]];
const THEMES = ["system", "light", "dark"];
let snapshot = null;
let shownAt = 0;
let eventNumber = 0;
let hasEvents = null;
let wake = () => {};

// Events -----------------------------------------------------------------------------------------

const text = {
  NodeStarted: (event) => `start ${event.incarnation}, release ${event.release}`,
  NodeStopped: (event) => event.reason,
  NodeFailed: (event) => event.reason,
  ControllerElected: (event) => `active controller, epoch ${event.leader_epoch}`,
  ControllerResigned: (event) => event.reason,
  LeaderElected: (event) => `leads ${event.topic}-${event.partition}, epoch ${event.leader_epoch}`,
  LeadershipLost: (event) => `${event.topic}-${event.partition}, epoch ${event.leader_epoch}`,
  IsrChanged: (event) => `${event.topic}-${event.partition}: in sync ${event.isr || "none"}`,
  IsrChangeAsked: (event) => `asks for ${event.isr} in sync, ${event.topic}-${event.partition}`,
  BrokerFenced: (event) => `broker ${event.broker_id}: ${event.reason}`,
  BrokerUnfenced: (event) => `broker ${event.broker_id}`,
  BrokerRegistered: (event) => `broker ${event.broker_id}, epoch ${event.broker_epoch}`,
  PartitionTruncated: (event) => `${event.topic}-${event.partition}: ${event.former_end_offset} to ${event.log_end_offset}`,
  ProducerFenced: (event) => `${event.transactional_id}, producer ${event.producer_id} epoch ${event.producer_epoch}, by ${event.api}`,
  TransactionAbortForced: (event) => `${event.transactional_id}: ${event.reason}`,
  TransactionRefused: (event) => `${event.api} of ${event.transactional_id}: error ${event.error_code}`,
  ProducerIdBlockAllocated: (event) => `ids ${event.first_producer_id} to ${event.next_producer_id - 1} for broker ${event.broker_id}`,
  ProducerIdBlockReceived: (event) => `ids ${event.first_producer_id} to ${event.next_producer_id - 1}`,
  ProducerIdBlockRefused: (event) => event.reason,
  FaultInjected: (event) => `${event.fault} at ${event.target}`,
  FaultEnded: (event) => `${event.fault} at ${event.target}`,
  FaultTookEffect: (event) => `${event.fault} at ${event.target}: ${event.effect}`,
  InvariantViolated: (event) => `${event.invariant}: ${event.message}`,
  LogDirectoryFailed: (event) => event.path,
  DiskFailed: (event) => `${event.operation} ${event.path}: ${event.reason}`,
  CleaningFailed: (event) => `${event.topic}-${event.partition}: ${event.reason}`,
};
// what a node does at its start, and for every internal partition, is no news
const isNews = (event) => !(event.topic?.startsWith("__") && /^(LeaderElected|LeadershipLost|IsrChanged|IsrChangeAsked)$/.test(event.kind)) && event.kind !== "IsrChanged" && event.kind !== "TransactionRefused";
const CONDITION_OF = { NodeStarted: "starting", NodeReady: "up", NodeStopped: "down", NodeFailed: "down" };

function take(event) {
  const at = event.wall_ms;
  const words = text[event.kind]?.(event) ?? "";
  eventNumber += 1;
  const key = `${event.node}.${event.incarnation}.${event.n}`;
  if (isNews(event)) addMark({ at, node: laneOf(event), kind: event.kind, text: words });
  noteEvent({ key, at, node: event.node, kind: event.kind, text: words });
  if (CONDITION_OF[event.kind]) noteCondition(event.node, CONDITION_OF[event.kind], at);
}

// an event of the controller about a broker belongs to the broker's lane
function laneOf(event) {
  if (/^Broker(Fenced|Unfenced|Registered)$/.test(event.kind)) return `broker-${event.broker_id}`;
  if (event.kind === "ProducerIdBlockAllocated") return `broker-${event.broker_id}`;
  return event.node;
}

// Without event logs (a cluster of another maker), changes between two snapshots are the events.
function compare(before, after) {
  if (before === null || hasEvents !== false) return;
  const at = after.taken_ms;
  const note = (node, kind, words) => {
    eventNumber += 1;
    addMark({ at, node, kind, text: words });
    noteEvent({ key: `seen-${eventNumber}`, at, node, kind, text: words });
  };
  const names = new Map(after.nodes.map((node) => [node.node_id, node.name]));
  if (before.controller !== after.controller && after.quorum) note(names.get(after.controller) ?? "*", "ControllerElected", `active controller, epoch ${after.quorum.leader_epoch}`);
  const former = new Map(before.topics.flatMap((topic) => topic.partitions.map((each) => [`${topic.name}-${each.partition}`, each])));
  for (const topic of after.topics) {
    for (const each of topic.partitions) {
      const known = former.get(`${topic.name}-${each.partition}`);
      if (known === undefined) continue;
      if (known.leader !== each.leader && each.leader !== null && each.leader !== undefined) note(names.get(each.leader) ?? "*", "LeaderElected", `leads ${topic.name}-${each.partition}, epoch ${each.leader_epoch}`);
      if (known.isr.length !== each.isr.length) note(names.get(each.leader) ?? "*", "IsrChanged", `${topic.name}-${each.partition}: in sync ${each.isr.join(",") || "none"}`);
    }
  }
}

// Panels -----------------------------------------------------------------------------------------

function showHead() {
  setText(byId("cluster-name"), snapshot.name);
  document.title = `${snapshot.name} · kraftsim`;
  const partitions = snapshot.topics.flatMap((topic) => topic.partitions);
  const releases = [...new Set(snapshot.nodes.map((node) => node.release).filter(Boolean))].sort();
  const leader = snapshot.nodes.find((node) => node.is_active_controller)?.name;
  const facts = [
    ["bootstrap", snapshot.bootstrap.length > 42 ? `${snapshot.bootstrap.split(",")[0]} +${snapshot.bootstrap.split(",").length - 1}` : snapshot.bootstrap, snapshot.bootstrap],
    ["controller", leader ?? (snapshot.controller ?? "none")],
    ["release", releases.join(", ") || "–"],
    ["topics", count(snapshot.topics.length)],
    ["partitions", count(partitions.length)],
  ];
  keep(byId("facts"), facts, ([name]) => name, ([name]) => element("div", {}, element("dt", { text: name }), element("dd")), (row, [, value, title]) => {
    setText(row.querySelector("dd"), String(value));
    setAttribute(row, "title", title ?? null);
  });
  showHealth(partitions);
}

function showHealth(partitions) {
  const isLost = (each) => each.leader === null || each.leader === undefined;
  const found = [
    [snapshot.checks?.violation_count ?? 0, "bad", (number) => `${count(number)} ${number === 1 ? "violation" : "violations"}`],
    [partitions.filter(isLost).length, "bad", (number) => `${count(number)} without leader`],
    [snapshot.nodes.filter((node) => node.condition === "down").length, "bad", (number) => `${number} down`],
    [snapshot.nodes.filter((node) => node.condition === "paused").length, "warn", (number) => `${number} paused`],
    [partitions.filter((each) => each.isr.length < each.replicas.length).length, "warn", (number) => `${count(number)} under-replicated`],
    [snapshot.request_faults.filter((fault) => !fault.is_over).length, "info", (number) => `${number} ${number === 1 ? "fault" : "faults"} armed`],
    [snapshot.network.length, "info", (number) => `${number} network ${number === 1 ? "condition" : "conditions"}`],
  ].filter(([number]) => number > 0).map(([number, tone, words]) => [words(number), tone]);
  const isUnread = snapshot.missing.topics !== undefined && snapshot.topics.length === 0;
  const shown = isUnread ? [["no broker answers", "bad"], ...found] : found.length ? found : [["healthy", "good"]];
  keep(byId("health"), shown, ([words]) => words, ([words, tone]) => element("span", { class: "chip", "data-tone": tone, text: words }), () => {});
}

function showViolations() {
  const box = byId("violations");
  const { checks } = snapshot;
  if (!checks) {
    keep(box, [{ key: "none" }], (each) => each.key, () => element("p", { class: "soft none" }), (row) => setText(row, snapshot.missing.checks ?? "Nothing is checked."));
    return;
  }
  const items = [{ key: "summary" }, ...[...checks.violations].reverse().map((each) => ({ ...each, key: `${each.invariant} ${each.message}` }))];
  keep(
    box,
    items,
    (each) => each.key,
    (each) =>
      each.key === "summary"
        ? element("details", { class: "summary" }, element("summary", {}, element("span", { class: "chip" }), element("span", { class: "soft" })), element("p", { class: "soft small-text" }))
        : element("article", { class: "violation" }, element("h3", { text: each.invariant }), element("p", { text: each.message }), element("p", { class: "soft", text: each.rule }), element("p", { class: "soft small-text", text: `${each.source} · events ${each.witnesses.join(", ")}` })),
    (row, each) => {
      if (each.key !== "summary") return;
      const chip = row.querySelector(".chip");
      setText(chip, checks.violation_count ? `${count(checks.violation_count)} violated` : "none violated");
      setAttribute(chip, "data-tone", checks.violation_count ? "bad" : "good");
      const behind = checks.behind_ms === null || checks.behind_ms === undefined ? "" : `, ${span(checks.behind_ms)} behind`;
      const unread = snapshot.unread_bytes ? `, ${count(snapshot.unread_bytes)} bytes to read` : "";
      setText(row.querySelector("summary .soft"), `${checks.checked.length} checked on ${count(checks.event_count)} events${behind}${unread}`);
      setText(row.querySelector("p"), `Checked: ${checks.checked.join(", ")}. Waiting for a first event: ${checks.idle.join(", ") || "none"}.`);
    },
  );
}

function showMissing() {
  const reasons = Object.entries(snapshot.missing);
  byId("missing-panel").hidden = reasons.length === 0;
  keep(byId("missing"), reasons, ([part]) => part, ([part]) => element("li", {}, element("strong", { text: part }), element("span", { class: "soft" })), (row, [, reason]) => setText(row.querySelector("span"), ` ${reason}`));
}

function show(taken) {
  compare(snapshot, taken);
  // those that are there when the page opens are no news
  const announcedBefore = snapshot === null ? Infinity : (snapshot.checks?.violation_count ?? 0);
  snapshot = taken;
  shownAt = performance.now();
  setServerTime(taken.taken_ms);
  showHead();
  showNodes(taken);
  showPartitions(taken);
  showFaults(taken);
  showViolations();
  showMissing();
  showTables(taken);
  if ((taken.checks?.violation_count ?? 0) > announcedBefore) {
    const newest = taken.checks.violations[taken.checks.violations.length - 1];
    toast(`Invariant violated: ${newest?.invariant}`, true);
    addMark({ at: now(), node: newest?.witnesses[0]?.split(".")[0] ?? "*", kind: "violation", text: `${newest?.invariant}: ${newest?.message}` });
  }
}

async function poll() {
  for (;;) {
    if (!document.hidden) {
      try {
        show(await call("GET", "/v1/state"));
        byId("pulse").dataset.tone = "good";
      } catch (error) {
        byId("pulse").dataset.tone = "bad";
        setText(byId("pulse"), `no answer: ${error.message}`);
      }
    }
    await new Promise((done) => {
      wake = done;
      setTimeout(done, POLL_MS);
    });
  }
}

// Beginning --------------------------------------------------------------------------------------

function beginWindows() {
  const stored = Number(localStorage.getItem("kraftsim-window") ?? 0);
  const choose = (milliseconds) => {
    setWindow(milliseconds);
    localStorage.setItem("kraftsim-window", String(milliseconds));
    for (const button of byId("windows").children) setAttribute(button, "aria-pressed", Number(button.value) === milliseconds ? "true" : "false");
  };
  byId("windows").append(...WINDOWS.map(([words, value]) => element("button", { type: "button", class: "quiet", value, text: words, on: { click: () => choose(value) } })));
  choose(stored);
}

function beginTheme() {
  let theme = localStorage.getItem("kraftsim-theme") ?? "system";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const isDark = theme === "dark" || (theme === "system" && system.matches);
    document.documentElement.dataset.scheme = isDark ? "dark" : "light";
    setText(byId("theme-name"), theme);
    due();
  };
  system.addEventListener("change", apply);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("kraftsim-theme", theme);
    apply();
  });
  apply();
}

beginWithToken();
beginTheme();
beginWindows();
beginLanes();
drawLegend();
beginPartitions();
beginFaults();
beginTables();
addEventListener("kraftsim-changed", () => wake());
document.addEventListener("visibilitychange", () => wake());
setInterval(() => {
  if (snapshot !== null && byId("pulse").dataset.tone === "good") setText(byId("pulse"), `live · ${clock(now()).slice(0, 8)}`);
}, 500);
poll();
follow(`/v1/events?from=start&kind=${KINDS.join(",")}`, (event) => {
  hasEvents = true;
  take(event);
}, (trouble) => {
  if (trouble && hasEvents === null && !trouble.startsWith("events:")) hasEvents = false;
  noteEventTrouble(hasEvents === false ? "" : trouble);
});
