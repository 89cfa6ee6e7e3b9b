// The view state: the window of time, the events in it, and the selection. Every change causes one redraw.
const whole = { from: facts.begin_ns, to: Math.max(facts.end_ns, facts.begin_ns + 1000) };
const margin = (whole.to - whole.from) * 0.01;
const limits = { from: whole.from - margin, to: whole.to + margin };
const SHORTEST_NS = 200;
const view = { from: limits.from, to: limits.to, hidden: new Set(), breach: null, kept: -1, pointed: -1, queued: false };
const listeners = [];

const breaches = invariants.flatMap((invariant) => invariant.breaches.map((breach, number) => ({ ...breach, invariant: invariant.name, number })));

function changed() {
  if (view.queued) return;
  view.queued = true;
  requestAnimationFrame(() => {
    view.queued = false;
    for (const listener of listeners) listener();
  });
}

function show(from, to) {
  let span = Math.max(SHORTEST_NS, Math.min(to - from, limits.to - limits.from));
  const middle = (from + to) / 2;
  view.from = Math.max(limits.from, Math.min(middle - span / 2, limits.to - span));
  view.to = view.from + span;
  changed();
}

function zoom(factor, at = (view.from + view.to) / 2) {
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

function pan(part) {
  const by = (view.to - view.from) * part;
  const room = by < 0 ? Math.max(by, limits.from - view.from) : Math.min(by, limits.to - view.to);
  show(view.from + room, view.to + room);
}

const showWhole = () => show(limits.from, limits.to);

function showEvents(events) {
  const times = events.map((i) => data.t[i]);
  const from = Math.min(...times), to = Math.max(...times);
  const room = Math.max((to - from) * 0.35, 2e6);
  show(from - room, to + room);
}

function chooseBreach(breach) {
  view.breach = breach;
  if (breach) {
    view.kept = breach.events.at(-1);
    history.replaceState(null, "", `#${encodeURIComponent(breach.invariant)}:${breach.number}`);
    showEvents(breach.events);
  }
  changed();
}

function nextBreach(step) {
  if (!breaches.length) return;
  const at = view.breach ? breaches.indexOf(view.breach) : step > 0 ? -1 : 0;
  chooseBreach(breaches[(at + step + breaches.length) % breaches.length]);
}

function keep(i) {
  view.kept = i;
  if (i >= 0) history.replaceState(null, "", `#event=${encodeURIComponent(idOf(i))}`);
  changed();
}

function goTo(i) {
  keep(i);
  const span = view.to - view.from;
  if (data.t[i] < view.from || data.t[i] > view.to) show(data.t[i] - span / 2, data.t[i] + span / 2);
}

// The next event on the lane of the pinned one, or on any lane if none is pinned.
function step(by) {
  const start = view.kept >= 0 ? view.kept : firstFrom(view.from) - (by > 0 ? 1 : 0);
  for (let i = start + by; i >= 0 && i < count; i += by) {
    const sameLane = view.kept < 0 || data.lane[i] === data.lane[view.kept];
    if (sameLane && !view.hidden.has(kindOf(i).family)) return goTo(i);
  }
}

function followHash() {
  const hash = decodeURIComponent(location.hash.slice(1));
  if (hash.startsWith("event=")) {
    const i = indexOfId(hash.slice(6));
    if (i < 0) return;
    view.kept = i;
    return show(data.t[i] - 1e7, data.t[i] + 1e7);
  }
  const [name, number] = hash.split(":");
  const breach = breaches.find((each) => each.invariant === name && each.number === Number(number ?? 0));
  if (breach) chooseBreach(breach);
}
