// The lanes: one per node, over time. A bar says whether the node ran, marks say what happened.
//
// Drawn on a canvas, because twelve nodes and an hour of events are thousands of marks. Everything
// in it is in the table of events as text, too.

import { byId, clock, span } from "./elements.js";

const HEIGHT = 46;
const SMALL_HEIGHT = 36;
const FEW_NODES = 8;
const NARROW = 760; // as in page.css
const AXIS_HEIGHT = 26;
const MARKS_MAX = 4000;

const CONDITIONS = {
  up: { colour: "--up", words: "up" },
  down: { colour: "--down", words: "down" },
  paused: { colour: "--paused", words: "paused" },
  starting: { colour: "--starting", words: "starting" },
  unknown: { colour: "--unknown", words: "not known" },
};

// kind of event -> family, which has the colour and the shape
const FAMILIES = {
  NodeStarted: "life", NodeReady: "life", NodeStopped: "life", NodeFailed: "bad",
  ControllerElected: "controller", ControllerResigned: "controller",
  LeaderElected: "leader", LeadershipLost: "leader", BrokerFenced: "fenced", BrokerUnfenced: "life",
  BrokerRegistered: "life", IsrChanged: "isr", IsrChangeAsked: "isr",
  LogDirectoryFailed: "bad", DiskFailed: "bad", CleaningFailed: "bad", PartitionTruncated: "isr",
  ProducerFenced: "transaction", TransactionAbortForced: "transaction", TransactionRefused: "transaction",
  ProducerIdBlockAllocated: "block", ProducerIdBlockReceived: "block", ProducerIdBlockRefused: "bad",
  FaultInjected: "fault", FaultEnded: "fault", FaultTookEffect: "fault", InvariantViolated: "bad",
  "request fault": "fault", network: "fault", verb: "fault", violation: "bad",
};
export const KINDS = Object.keys(FAMILIES).filter((kind) => /^[A-Z]/.test(kind));
const LEGEND = [
  ["controller", "controller"], ["leader", "leader elected"], ["isr", "ISR"], ["fenced", "fenced"],
  ["transaction", "transaction"], ["block", "block of ids"], ["fault", "fault"], ["bad", "violation, failure"],
];

export const familyOf = (kind) => FAMILIES[kind] ?? "life";

const lanes = { names: [], height: HEIGHT, bars: new Map(), marks: [], chosenMs: 0, windowMs: 60000, offsetMs: 0, chosen: null, hits: [] };
let isDue = false;

export function setNames(names) {
  lanes.names = names;
  lanes.height = names.length > FEW_NODES ? SMALL_HEIGHT : HEIGHT;
  byId("nodes").style.setProperty("--lane", `${lanes.height}px`);
  due();
}

export function setWindow(milliseconds) {
  lanes.chosenMs = milliseconds;
  due();
}

export const now = () => Date.now() + lanes.offsetMs;

export function setServerTime(milliseconds) {
  // the clock of the server counts: events carry it
  const offset = milliseconds - Date.now();
  if (Math.abs(offset - lanes.offsetMs) > 1500) lanes.offsetMs = offset;
}

// The condition of a node from a moment on; moments may come in any order.
export function noteCondition(node, condition, at) {
  const bars = lanes.bars.get(node) ?? [];
  lanes.bars.set(node, bars);
  let place = bars.length;
  while (place > 0 && bars[place - 1].at > at) place -= 1;
  if (place > 0 && bars[place - 1].condition === condition) return false;
  if (place < bars.length && bars[place].condition === condition) {
    bars[place].at = at;
    return false;
  }
  bars.splice(place, 0, { at, condition });
  if (bars.length > 400) bars.shift();
  due();
  return true;
}

export function lastCondition(node) {
  const bars = lanes.bars.get(node);
  return bars?.length ? bars[bars.length - 1].condition : null;
}

export function addMark(mark) {
  const last = lanes.marks[lanes.marks.length - 1];
  if (last !== undefined && last.kind === mark.kind && last.node === mark.node && mark.at - last.at < 40) {
    last.count += 1;
    last.texts.push(mark.text);
    if (last.texts.length > 6) last.texts.splice(1, 1);
  } else {
    lanes.marks.push({ ...mark, count: 1, texts: [mark.text] });
    if (lanes.marks.length > MARKS_MAX) lanes.marks.shift();
  }
  due();
}

export function due() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

export function drawLegend() {
  const legend = byId("legend");
  legend.replaceChildren(
    ...LEGEND.map(([family, words]) => {
      const item = document.createElement("span");
      item.className = "key";
      item.dataset.family = family;
      item.textContent = words;
      return item;
    }),
  );
}

function draw() {
  const canvas = byId("lanes");
  const width = canvas.parentElement.clientWidth;
  const height = lanes.names.length * lanes.height + AXIS_HEIGHT;
  const ratio = window.devicePixelRatio || 1;
  if (width === 0 || lanes.names.length === 0) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const styles = getComputedStyle(document.documentElement);
  const colour = (name) => styles.getPropertyValue(name).trim();
  const end = now();
  lanes.windowMs = lanes.chosenMs || fittingMs(end);
  const begin = end - lanes.windowMs;
  const x = (at) => ((at - begin) / lanes.windowMs) * (width - 14);
  drawAxis(pen, begin, end, x, width, height, colour);
  lanes.names.forEach((name, lane) => drawBars(pen, name, lane, begin, end, x, colour));
  drawMarks(pen, begin, x, colour);
  pen.strokeStyle = colour("--accent");
  pen.globalAlpha = 0.65;
  pen.beginPath();
  pen.moveTo(x(end) + 0.5, 0);
  pen.lineTo(x(end) + 0.5, height - AXIS_HEIGHT);
  pen.stroke();
  pen.globalAlpha = 1;
}

// From the first thing that is known to now: a minute at least, a quarter of an hour at most.
function fittingMs(end) {
  const first = Math.min(lanes.marks[0]?.at ?? end, ...[...lanes.bars.values()].map((bars) => bars[0]?.at ?? end));
  return Math.min(900000, Math.max(60000, (end - first) * 1.04 + 1500));
}

function drawAxis(pen, begin, end, x, width, height, colour) {
  const steps = [1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 900000, 1800000, 3600000];
  const step = steps.find((each) => lanes.windowMs / each <= Math.max(3, width / 110)) ?? 3600000;
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = "middle";
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
    const place = Math.round(x(at)) + 0.5;
    pen.strokeStyle = colour("--grid");
    pen.beginPath();
    pen.moveTo(place, 0);
    pen.lineTo(place, height - AXIS_HEIGHT + 4);
    pen.stroke();
    const text = new Date(at).toLocaleTimeString("en-GB", { hour12: false });
    const half = pen.measureText(text).width / 2;
    if (place - half < 0 || place + half > width) continue;
    pen.fillStyle = colour("--soft");
    pen.fillText(text, place - half, height - AXIS_HEIGHT / 2 + 3);
  }
}

function drawBars(pen, name, lane, begin, end, x, colour) {
  const middle = lane * lanes.height + lanes.height / 2;
  pen.strokeStyle = colour("--grid");
  pen.beginPath();
  pen.moveTo(0, (lane + 1) * lanes.height - 0.5);
  pen.lineTo(x(end) + 14, (lane + 1) * lanes.height - 0.5);
  pen.stroke();
  if (innerWidth <= NARROW) {
    // the list of nodes is above the lanes, not beside them
    pen.fillStyle = colour("--soft");
    pen.fillText(name, 2, lane * lanes.height + 8);
  }
  const bars = lanes.bars.get(name) ?? [];
  bars.forEach((bar, index) => {
    const until = bars[index + 1]?.at ?? end;
    if (until <= begin) return;
    const from = Math.max(0, x(bar.at));
    const to = Math.max(from + 1.5, x(until));
    pen.fillStyle = colour(CONDITIONS[bar.condition]?.colour ?? "--unknown");
    const isThin = bar.condition === "down" || bar.condition === "unknown";
    const thickness = isThin ? 4 : 14;
    pen.beginPath();
    pen.roundRect(from, middle - thickness / 2, to - from, thickness, Math.min(3, thickness / 2));
    pen.fill();
    if (bar.condition === "paused") hatch(pen, from, to, middle, thickness, colour("--panel"));
    if (bar.condition !== "up" && to - from > 54) {
      pen.fillStyle = colour(isThin ? "--down" : "--bar-text");
      pen.fillText(CONDITIONS[bar.condition].words, from + 6, isThin ? middle - 9 : middle + 0.5);
    }
  });
}

function hatch(pen, from, to, middle, thickness, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(from, middle - thickness / 2, to - from, thickness);
  pen.clip();
  pen.strokeStyle = colour;
  pen.globalAlpha = 0.4;
  for (let place = from - thickness; place < to; place += 7) {
    pen.beginPath();
    pen.moveTo(place, middle + thickness / 2);
    pen.lineTo(place + thickness, middle - thickness / 2);
    pen.stroke();
  }
  pen.restore();
}

function drawMarks(pen, begin, x, colour) {
  lanes.hits = [];
  for (const mark of lanes.marks) {
    if (mark.at < begin) continue;
    const lane = lanes.names.indexOf(mark.node);
    const places = lane >= 0 ? [lane] : mark.node === "*" ? lanes.names.map((_, index) => index) : [];
    for (const place of places) {
      const centre = { x: x(mark.at), y: place * lanes.height + lanes.height / 2 };
      const family = familyOf(mark.kind);
      const isChosen = mark === lanes.chosen;
      pen.fillStyle = colour(`--mark-${family}`);
      pen.strokeStyle = colour("--panel");
      pen.lineWidth = 1.5;
      shape(pen, family, centre, (isChosen ? 8 : 5.2) + Math.min(2, Math.log10(mark.count) * 1.4));
      pen.fill();
      pen.stroke();
      pen.lineWidth = 1;
      lanes.hits.push({ ...centre, mark });
    }
  }
}

function shape(pen, family, { x, y }, size) {
  pen.beginPath();
  if (family === "controller") {
    for (let point = 0; point < 10; point += 1) {
      const radius = (point % 2 ? 0.48 : 1.25) * size;
      const angle = (Math.PI / 5) * point - Math.PI / 2;
      pen.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
    }
  } else if (family === "leader") {
    pen.moveTo(x, y - size * 1.15);
    pen.lineTo(x + size * 1.05, y);
    pen.lineTo(x, y + size * 1.15);
    pen.lineTo(x - size * 1.05, y);
  } else if (family === "bad") {
    const thin = size * 0.38;
    const wide = size * 1.2;
    for (const [dx, dy] of [[-wide, -wide + thin], [-wide + thin, -wide], [0, -thin], [wide - thin, -wide], [wide, -wide + thin], [thin, 0], [wide, wide - thin], [wide - thin, wide], [0, thin], [-wide + thin, wide], [-wide, wide - thin], [-thin, 0]]) pen.lineTo(x + dx, y + dy);
  } else if (family === "fault") {
    for (const [dx, dy] of [[0.3, -1.5], [-0.8, 0.25], [-0.1, 0.25], [-0.35, 1.5], [0.85, -0.35], [0.1, -0.35]]) pen.lineTo(x + dx * size, y + dy * size);
  } else if (family === "fenced" || family === "block") {
    pen.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
  } else {
    pen.arc(x, y, size * 0.8, 0, 2 * Math.PI);
  }
  pen.closePath();
}

function show(hit) {
  const tip = byId("tip");
  lanes.chosen = hit?.mark ?? null;
  tip.hidden = hit === null;
  if (hit !== null) {
    const { mark } = hit;
    const rest = mark.count - mark.texts.length;
    tip.replaceChildren(
      Object.assign(document.createElement("strong"), { textContent: `${mark.node === "*" ? "all nodes" : mark.node} · ${mark.kind}${mark.count > 1 ? ` × ${mark.count}` : ""}` }),
      Object.assign(document.createElement("span"), { className: "soft", textContent: `${clock(mark.at)}, ${span(now() - mark.at)} ago` }),
      ...mark.texts.map((textContent) => Object.assign(document.createElement("span"), { textContent })),
      ...(rest > 0 ? [Object.assign(document.createElement("span"), { className: "soft", textContent: `and ${rest} more` })] : []),
    );
    const box = byId("lanes").parentElement;
    const isRight = hit.x > box.clientWidth / 2;
    tip.style.left = isRight ? "" : `${hit.x + 14}px`;
    tip.style.right = isRight ? `${box.clientWidth - hit.x + 14}px` : "";
    tip.style.top = `${Math.max(0, hit.y - 12)}px`;
  }
  due();
}

export function beginLanes() {
  const canvas = byId("lanes");
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    let nearest = null;
    let least = 14;
    for (const hit of lanes.hits) {
      const distance = Math.hypot(hit.x - offsetX, hit.y - offsetY);
      if (distance < least) [nearest, least] = [hit, distance];
    }
    if (nearest?.mark !== lanes.chosen || nearest === null) show(nearest);
  });
  canvas.addEventListener("pointerleave", () => show(null));
  canvas.addEventListener("blur", () => show(null));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") show(null);
    if (step === undefined || lanes.hits.length === 0) return;
    event.preventDefault();
    const ordered = [...lanes.hits].sort((one, other) => one.x - other.x);
    const at = ordered.findIndex((hit) => hit.mark === lanes.chosen);
    const next = at < 0 ? (step < 0 ? ordered.length - 1 : 0) : Math.min(ordered.length - 1, Math.max(0, at + step));
    show(ordered[next]);
  });
  new ResizeObserver(due).observe(canvas.parentElement);
  setInterval(() => {
    if (!document.hidden) due();
  }, 250);
}
