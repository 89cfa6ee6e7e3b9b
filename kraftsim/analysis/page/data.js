// The data of the page: the payload is unpacked into typed arrays once. Nothing is fetched.
const meta = JSON.parse(document.getElementById("meta").textContent);
const { facts, layout, looks, families, apis, invariants } = meta;
const familyNames = Object.keys(families);
const count = layout.event_count;
const data = { t: null, lane: null, kind: null, incarnation: null, n: null, cause: null, row: null, kinds: [], texts: [] };

function decode(column, bytes, at) {
  const size = { d1: 1, u1: 1, d4: 4, f8: 8 }[column.coding] * column.count;
  const slice = bytes.slice(at, at + size);
  if (column.coding === "u1") return [new Uint8Array(slice), at + size];
  if (column.coding === "f8") return [new Float64Array(slice), at + size];
  const differences = column.coding === "d1" ? new Int8Array(slice) : new Int32Array(slice);
  const values = new Float64Array(column.count);
  let value = 0;
  for (let i = 0; i < column.count; i++) values[i] = value += differences[i];
  return [values, at + size];
}

async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  let at = 0;
  const common = {};
  for (const column of layout.common) [common[column.name], at] = decode(column, bytes, at);
  for (const { kind, columns } of layout.kinds) {
    const fields = [];
    for (const column of columns) {
      let values;
      [values, at] = decode(column, bytes, at);
      fields.push({ name: column.name, meaning: column.meaning, values });
    }
    data.kinds.push({ name: kind, fields, family: familyNames.indexOf(looks[kind].family), bad: looks[kind].bad, label: looks[kind].label });
  }
  data.texts = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, at, layout.texts_bytes)));
  Object.assign(data, { t: common.t, lane: common.lane, kind: common.kind, incarnation: common.incarnation });
  number(common);
}

// Line numbers, rows within a kind, and causes follow from the order of the events.
function number({ skipped, back }) {
  const nextOfLog = new Map();
  const nextOfKind = new Int32Array(data.kinds.length);
  data.n = new Float64Array(count);
  data.row = new Int32Array(count);
  data.cause = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    const log = data.lane[i] * 65536 + data.incarnation[i];
    data.n[i] = (nextOfLog.get(log) ?? 0) + skipped[i];
    nextOfLog.set(log, data.n[i] + 1);
    data.row[i] = nextOfKind[data.kind[i]]++;
    data.cause[i] = back[i] ? i - back[i] : -1;
  }
}

const kindOf = (i) => data.kinds[data.kind[i]];
const idOf = (i) => `${facts.lanes[data.lane[i]].name}.${data.incarnation[i]}.${data.n[i]}`;

function valueOf(field, row) {
  const value = field.values[row];
  if (field.meaning === "flag") return value === 2 ? null : value === 1;
  if (field.meaning === "text") return value < 0 ? null : data.texts[value];
  return value;
}

function fieldsOf(i) {
  const pairs = [];
  for (const field of kindOf(i).fields) {
    const value = valueOf(field, data.row[i]);
    if (value !== null) pairs.push([field.name, field.name === "api_key" && apis[value] ? `${value} ${apis[value]}` : String(value)]);
  }
  return pairs;
}

function labelOf(i) {
  return kindOf(i).label.replace(/\{(\w+)\}/g, (whole, name) => {
    const field = kindOf(i).fields.find((each) => each.name === name);
    const value = field ? valueOf(field, data.row[i]) : "";
    const text = name === "api_key" && apis[value] ? apis[value] : String(value ?? "");
    return text.length > 28 ? `${text.slice(0, 27)}…` : text;
  });
}

function indexOfId(id) {
  for (let i = 0; i < count; i++) if (idOf(i) === id) return i;
  return -1;
}

// The first event at or after a time.
function firstFrom(t) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.t[middle] < t) low = middle + 1; else high = middle;
  }
  return low;
}

function seconds(ns, span) {
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(span / 1e9)) + 2));
  return `${(ns / 1e9).toFixed(decimals)} s`;
}

function duration(ns) {
  const size = Math.abs(ns);
  if (size >= 1e9) return `${(ns / 1e9).toFixed(2)} s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  return size >= 1e3 ? `${(ns / 1e3).toFixed(1)} µs` : `${ns} ns`;
}
