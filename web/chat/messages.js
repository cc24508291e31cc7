// One message on the page: its text, what can be done with it, its numbers. Makes nodes; decides nothing.
import { showMarkdown } from "./markdown.js";

const make = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

const button = (text, label, run) => {
  const node = make("button", "", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", run);
  return node;
};

function facts(meta) {
  const parts = [];
  if (meta.tokens) parts.push(`${meta.tokens} tokens`);
  if (meta.rate) parts.push(`${meta.rate.toFixed(1)} tok/s`);
  if (meta.prompt) parts.push(`${meta.prompt} in the prompt`);
  if (meta.seed !== null && meta.seed !== undefined) parts.push(`seed ${meta.seed}`);
  if (meta.fingerprint) parts.push(`bits ${meta.fingerprint.slice(0, 12)}`);
  if (meta.finish && meta.finish !== "stop") parts.push(meta.finish === "length" ? "cut at the limit" : meta.finish);
  return parts.join(" · ");
}

function branchTools(node, actions, branches) {
  const at = branches.indexOf(node);
  const back = button("‹", "Earlier version", () => actions.choose(branches[at - 1]));
  const on = button("›", "Later version", () => actions.choose(branches[at + 1]));
  back.disabled = at === 0;
  on.disabled = at === branches.length - 1;
  return [back, make("span", "facts", `${at + 1}/${branches.length}`), on];
}

function editor(node, actions, body) {
  const area = make("textarea");
  area.value = node.content;
  area.setAttribute("aria-label", "Edited message");
  const row = make("div", "tools");
  const done = button(node.role === "user" ? "Send as a new branch" : "Keep as a new branch", "", () => actions.edit(node, area.value));
  const box = make("div");
  const cancel = button("Cancel", "", () => box.replaceWith(body));
  row.append(done, cancel);
  box.append(area, row);
  body.replaceWith(box);
  area.focus();
}

// {element, show(), busy(on)}: `show` draws the node's text again.
export function messageView(node, actions, branches) {
  const element = make("article", node.role);
  element.append(make("h3", "", node.role === "user" ? "You" : "Model"));
  const thought = make("details", "reasoning");
  thought.append(make("summary", "", "Reasoning"), make("div", "text plain"));
  const body = make("div", "text");
  if (node.role === "user") {
    body.classList.add("plain");
    body.dir = "auto";
  }
  const tools = make("div", "tools");
  const outcome = make("span", "facts");
  outcome.setAttribute("role", "status");
  element.append(thought, body, tools);
  const show = () => {
    thought.hidden = !node.reasoning;
    thought.lastChild.textContent = node.reasoning;
    if (node.role === "user") body.textContent = node.content;
    else showMarkdown(body, node.content);
  };
  show();
  if (branches.length > 1) tools.append(...branchTools(node, actions, branches));
  tools.append(button("Edit", "Edit this message", () => editor(node, actions, body)));
  tools.append(button("Copy", "Copy this message", () => navigator.clipboard?.writeText(node.content).catch(() => {})));
  if (node.role === "assistant") {
    tools.append(button("Regenerate", "Regenerate: answer again with another seed", () => actions.again(node)));
    if (node.meta?.request) {
      tools.append(button("Same bits?", "Same bits? Run again with the same seed and compare", () =>
        actions.sameBits(node, (text, bad) => {
          outcome.textContent = text;
          outcome.classList.toggle("error", Boolean(bad));
        })));
    }
    if (node.meta) tools.append(make("span", "facts", facts(node.meta)));
    tools.append(outcome);
  }
  return {
    element,
    show,
    busy(on) {
      body.classList.toggle("cursor", on);
      tools.hidden = on;
    },
  };
}
