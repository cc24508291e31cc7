// Markdown to DOM nodes. Text becomes text nodes and nothing else: never markup, no attributes from the text but checked
// link targets, no images. What the model writes can therefore never run. A subset: headings, lists, quotes, tables,
// rules, fenced code, emphasis, code, links.

const element = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// Only these leave the page, and only when clicked.
const safeLink = (target) => (/^(https?:\/\/|mailto:)[^\s<>"]+$/i.test(target) ? target : null);

const kInline = /(`+)([^`][\s\S]{0,1000}?)\1(?!`)|!?\[([^\]\n]{0,500})\]\(([^()\s]{1,2000})\)|\*\*([^\s*][^\n]{0,500}?)\*\*|__([^\s_][^\n]{0,500}?)__|\*([^\s*][^*\n]{0,500}?)\*|~~([^\n]{1,500}?)~~|(https?:\/\/[^\s<>"'`)\]]{1,1000})|\\([\\`*_{}[\]()#+.!|~>-])/;

// The text with its emphasis, code and links as nodes. Nesting is bounded.
function inline(text, depth = 0) {
  const out = [];
  let rest = text;
  while (rest) {
    const found = depth < 6 ? kInline.exec(rest) : null;
    if (!found) break;
    if (found.index) out.push(rest.slice(0, found.index));
    const [all, , code, label, target, strong, strong2, soft, gone, bare, escaped] = found;
    if (code !== undefined) out.push(element("code", {}, code.trim() || code));
    else if (target !== undefined) {
      const safe = safeLink(target);
      const children = label ? inline(label, depth + 1) : [target];
      out.push(safe ? element("a", { href: safe, rel: "noopener noreferrer nofollow", target: "_blank" }, ...children) : all);
    } else if (strong ?? strong2) out.push(element("strong", {}, ...inline(strong ?? strong2, depth + 1)));
    else if (soft) out.push(element("em", {}, ...inline(soft, depth + 1)));
    else if (gone) out.push(element("s", {}, ...inline(gone, depth + 1)));
    else if (bare) {
      const trimmed = bare.replace(/[.,;:!?]+$/, "");
      out.push(element("a", { href: trimmed, rel: "noopener noreferrer nofollow", target: "_blank" }, trimmed), bare.slice(trimmed.length));
    } else out.push(escaped ?? all);
    rest = rest.slice(found.index + all.length);
  }
  if (rest) out.push(rest);
  return out;
}

// Cuts a text into blocks: [kind, lines]. A fence that is not closed yet is a block too, so that streams look right.
function blocks(text) {
  const found = [];
  let open = null;
  const push = (kind, line) => {
    if (open && open[0] === kind) open[1].push(line);
    else found.push((open = [kind, [line]]));
  };
  let fence = null;
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      if (mark && line.trim().startsWith(fence) && !mark[2]) fence = open = null;
      else open[1].push(line);
    } else if (mark) {
      fence = mark[1];
      found.push((open = ["code", [mark[2]]]));
    } else if (!line.trim()) {
      // A blank line inside a list belongs to it when the list goes on.
      if (open && open[0] === "list") open[1].push("");
      else open = null;
    } else if (/^#{1,6}\s/.test(line)) {
      found.push(["heading", [line]]);
      open = null;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      found.push(["rule", [line]]);
      open = null;
    } else if (/^\s*([-*+]|\d{1,9}[.)])\s/.test(line)) push("list", line);
    else if (open && open[0] === "list" && (/^\s{2,}/.test(line) || open[1].at(-1) !== "")) open[1].push(line);
    else if (/^\s*>/.test(line)) push("quote", line.replace(/^\s*> ?/, ""));
    else if (/^\s*\|/.test(line)) push("table", line);
    else push("text", line);
  }
  return found;
}

function list(lines, depth = 0) {
  const first = /^(\s*)([-*+]|(\d{1,9})[.)])\s/.exec(lines[0]);
  const node = element(first[3] ? "ol" : "ul", first[3] && first[3] !== "1" ? { start: String(Number(first[3])) } : {});
  const indent = first[1].length;
  let item = [];
  const flush = () => {
    if (!item.length) return;
    const text = item[0].replace(/^\s*([-*+]|\d{1,9}[.)])\s/, "");
    const nested = item.slice(1).filter((line, i, all) => line || i < all.length - 1);
    const at = nested.findIndex((line) => /^\s*([-*+]|\d{1,9}[.)])\s/.test(line));
    const head = [text, ...(at < 0 ? nested : nested.slice(0, at))].join(" ").trim();
    const li = element("li", {}, ...inline(head));
    if (at >= 0 && depth < 8) li.append(list(nested.slice(at), depth + 1));
    node.append(li);
    item = [];
  };
  for (const line of lines) {
    const mark = /^(\s*)([-*+]|\d{1,9}[.)])\s/.exec(line);
    if (mark && mark[1].length <= indent + 1) flush();
    item.push(line);
  }
  flush();
  return node;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
  const ruled = lines.length > 1 && /^[\s|:-]+$/.test(lines[1]) && lines[1].includes("-");
  const node = element("table");
  lines.forEach((line, i) => {
    if (ruled && i === 1) return;
    const kind = ruled && i === 0 ? "th" : "td";
    node.append(element("tr", {}, ...cells(line).map((cell) => element(kind, kind === "th" ? { scope: "col" } : {}, ...inline(cell)))));
  });
  return node;
}

function code([language, ...lines]) {
  const text = lines.join("\n");
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const pre = element("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code, ${language}` : "Code" }, element("code", { dir: "ltr" }, text));
  return element("div", { class: "code" }, element("div", {}, element("span", {}, language || "code"), copy), pre);
}

function block([kind, lines], depth) {
  if (kind === "code") return code(lines);
  if (kind === "heading") {
    const level = Math.min(6, 3 + /^#+/.exec(lines[0])[0].length);
    return element(`h${level}`, { dir: "auto" }, ...inline(lines[0].replace(/^#+\s*/, "").replace(/\s#+\s*$/, "")));
  }
  if (kind === "rule") return element("hr");
  if (kind === "list") return list(lines.join("\n").trimEnd().split("\n"));
  if (kind === "table") return table(lines);
  if (kind === "quote") {
    const quote = element("blockquote");
    if (depth > 6) quote.append(lines.join("\n"));
    else for (const inner of blocks(lines.join("\n"))) quote.append(block(inner, depth + 1));
    return quote;
  }
  const paragraph = element("p", { dir: "auto" });
  lines.forEach((line, i) => {
    if (i) paragraph.append(element("br"));
    paragraph.append(...inline(line));
  });
  return paragraph;
}

// Shows `text` in `target`. Called again with a longer text it makes only the blocks anew that changed.
export function showMarkdown(target, text) {
  const fresh = blocks(text);
  const old = target.shownBlocks ?? [];
  let same = 0;
  while (same < fresh.length && same < old.length && fresh[same].flat().join("\n") === old[same]) ++same;
  while (target.childNodes.length > same) target.lastChild.remove();
  for (const one of fresh.slice(same)) target.append(block(one, 0));
  target.shownBlocks = fresh.map((one) => one.flat().join("\n"));
}
