// Conversations in the browser's own storage. A conversation is a tree: editing a message or answering again adds a
// branch beside the old one, and nothing is lost. Knows nothing of the page.

const kKey = "octavo.chat.1";
const newId = () => Math.random().toString(36).slice(2, 10) + Date.now().toString(36);

// {id, title, nodes: {id: {id, parent, role, content, reasoning, meta}}, chosen: {parent: child}}
const blank = () => ({ id: newId(), title: "", time: Date.now(), nodes: {}, chosen: {} });

// Anything may be in a file: only what has the right form gets in.
function checked(value) {
  if (!value || typeof value !== "object" || typeof value.nodes !== "object" || !value.nodes) return null;
  const clean = blank();
  clean.title = String(value.title ?? "").slice(0, 200);
  clean.time = Number(value.time) || Date.now();
  for (const [id, node] of Object.entries(value.nodes)) {
    if (!/^[a-z0-9]{1,40}$/.test(id) || !["user", "assistant"].includes(node?.role)) continue;
    const parent = typeof node.parent === "string" ? node.parent : "";
    clean.nodes[id] = { id, parent, role: node.role, content: String(node.content ?? ""), reasoning: String(node.reasoning ?? ""), meta: null };
    const meta = node.meta;
    if (meta && typeof meta === "object") {
      clean.nodes[id].meta = { seed: meta.seed ?? null, fingerprint: String(meta.fingerprint ?? ""), tokens: Number(meta.tokens) || 0, prompt: Number(meta.prompt) || 0, rate: Number(meta.rate) || 0, finish: String(meta.finish ?? ""), model: String(meta.model ?? ""), request: typeof meta.request === "object" ? meta.request : null };
    }
  }
  for (const [parent, child] of Object.entries(value.chosen ?? {})) {
    if (typeof child === "string" && Object.hasOwn(clean.nodes, child)) clean.chosen[parent] = child;
  }
  return clean;
}

export class Store {
  constructor() {
    this.all = [];
    this.options = {};
    try {
      const saved = JSON.parse(localStorage.getItem(kKey) ?? "{}");
      this.all = (saved.all ?? []).map(checked).filter(Boolean);
      this.options = typeof saved.options === "object" && saved.options ? saved.options : {};
    } catch {
      // What cannot be read is as good as not there.
    }
    this.current = this.all[0] ?? this.start();
  }

  start() {
    if (this.current && !Object.keys(this.current.nodes).length) return this.current;
    this.current = blank();
    this.all.unshift(this.current);
    return this.current;
  }

  open(id) { this.current = this.all.find((one) => one.id === id) ?? this.current; }

  remove(id) {
    this.all = this.all.filter((one) => one.id !== id);
    if (this.current.id === id) this.current = this.all[0] ?? this.start();
  }

  // False when the browser has no room left.
  save() {
    try {
      const all = this.all.filter((one) => Object.keys(one.nodes).length);
      localStorage.setItem(kKey, JSON.stringify({ all, options: this.options }));
      return true;
    } catch {
      return false;
    }
  }

  add(parent, role, content) {
    const node = { id: newId(), parent, role, content, reasoning: "", meta: null };
    this.current.nodes[node.id] = node;
    this.current.chosen[parent] = node.id;
    this.current.time = Date.now();
    if (!this.current.title && role === "user") this.current.title = content.trim().slice(0, 60);
    return node;
  }

  // Takes a node out that nothing hangs on; an older branch is shown again.
  drop(node) {
    delete this.current.nodes[node.id];
    const other = this.branches(node).at(-1);
    if (other) this.choose(other);
    else delete this.current.chosen[node.parent];
  }

  // The other answers or wordings at the place of a node, itself included.
  branches(node) { return Object.values(this.current.nodes).filter((one) => one.parent === node.parent && one.role === node.role); }
  choose(node) { this.current.chosen[node.parent] = node.id; }

  // The messages that are shown: from the first along the chosen branches.
  path() {
    const path = [];
    let at = "";
    while (path.length < 10000 && Object.hasOwn(this.current.chosen, at)) {
      const node = this.current.nodes[this.current.chosen[at]];
      if (!node || path.includes(node)) break;
      path.push(node);
      at = node.id;
    }
    return path;
  }

  export() { return JSON.stringify({ octavo_chats: 1, all: this.all.filter((one) => Object.keys(one.nodes).length) }, null, 1); }

  // How many came in. Throws for a file that is none of ours.
  import(text) {
    const value = JSON.parse(text);
    if (value?.octavo_chats !== 1 || !Array.isArray(value.all)) throw new Error("no file of conversations");
    const fresh = value.all.map(checked).filter(Boolean);
    this.all.unshift(...fresh);
    if (fresh.length) this.current = fresh[0];
    return fresh.length;
  }
}
