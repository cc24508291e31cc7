// The chat page: what the user does becomes requests and nodes of the conversation's tree; what the server says is
// shown as it comes. Modules: store.js (conversations), api.js (HTTP), markdown.js (text to nodes), messages.js.
import { ApiError, listModels, streamChat } from "./api.js";
import { Store } from "./store.js";
import { messageView } from "./messages.js";

const $ = (id) => document.getElementById(id);
const store = new Store();
let running = null; // {controller, node, view} while an answer comes
let retryTimer = 0;
let models = [];

const setting = (name) => document.querySelector(`[data-option=${name}]`);
const key = () => $("key").value.trim();

// --- what is shown ---

function showList() {
  $("list").replaceChildren(
    ...store.all.map((one) => {
      const item = document.createElement("li");
      const open = document.createElement("button");
      open.type = "button";
      open.textContent = one.title || "New chat";
      open.setAttribute("aria-current", String(one === store.current));
      open.addEventListener("click", () => {
        stop();
        store.open(one.id);
        showAll();
        closeMenu();
      });
      const remove = document.createElement("button");
      remove.type = "button";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Delete ${one.title || "new chat"}`);
      remove.addEventListener("click", () => {
        if (running) stop();
        store.remove(one.id);
        keep();
        showAll();
      });
      item.append(open, remove);
      return item;
    }),
  );
}

function showAll() {
  showList();
  const path = store.path();
  const views = path.map((node) => messageView(node, actions, store.branches(node)));
  if (!views.length && canChat()) {
    const hint = document.createElement("p");
    hint.className = "empty";
    hint.textContent = "Ask something. Your messages go to this server only.";
    views.push(hint);
  }
  $("log").replaceChildren(...views.map((view) => view.element ?? view));
  $("log").scrollTop = $("log").scrollHeight;
  return views.at(-1);
}

function keep() {
  if (!store.save()) notice("The browser has no room left for conversations. Export and delete some.");
}

function notice(text, action) {
  clearInterval(retryTimer);
  $("notice").replaceChildren();
  if (!text) return;
  const box = document.createElement("div");
  const words = document.createElement("span");
  words.textContent = text;
  words.className = "grow";
  box.append(words);
  if (action) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = action.label;
    button.addEventListener("click", () => {
      notice("");
      action.run();
    });
    box.append(button);
  }
  $("notice").append(box);
  return words;
}

// What is read aloud: at most twice a second, whole stretches.
const live = { text: "", time: 0, timer: 0 };
function announce(text) {
  live.text = text;
  if (live.timer) return;
  live.timer = setTimeout(() => {
    live.timer = 0;
    live.time = Date.now();
    $("live").textContent = live.text;
  }, Math.max(0, 600 - (Date.now() - live.time)));
}

// --- answers ---

function requestFor(parent) {
  const messages = [];
  const system = $("system").value.trim();
  if (system) messages.push({ role: "system", content: system });
  const path = [];
  for (let node = store.current.nodes[parent]; node; node = store.current.nodes[node.parent]) path.unshift(node);
  for (const node of path) messages.push({ role: node.role, content: node.content });
  const request = { model: $("model").value, messages };
  for (const input of document.querySelectorAll("[data-option]")) {
    if (input.value !== "" && input.checkValidity()) request[input.dataset.option] = Number(input.value);
  }
  // A seed that is known can be used again.
  request.seed ??= crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
  return request;
}

function explain(error, again) {
  if (!(error instanceof ApiError)) {
    notice(`Something went wrong in the page: ${error.message}`);
    return;
  }
  if (error.status === 401) {
    openSettings(true);
    notice(error.message, key() ? { label: "Try again", run: again } : undefined);
    $("key").focus();
    return;
  }
  if (!error.retry) {
    // What the server found wrong with a request stays wrong.
    const refused = error.status >= 400 && error.status < 500;
    notice(error.message, again && !refused ? { label: "Try again", run: again } : undefined);
    return;
  }
  let left = error.retry;
  const words = notice(error.message, { label: "Try now", run: again });
  retryTimer = setInterval(() => {
    words.textContent = error.message.replace(/Next try in .*/, `Next try in ${--left} s.`);
    if (left > 0) return;
    notice("");
    again();
  }, 1000);
}

// Runs a request and gives the text to `show` as it grows.
async function run(request, show) {
  const controller = new AbortController();
  const result = { content: "", reasoning: "", first: 0, last: 0, pieces: 0, stopped: false };
  running = { controller };
  $("stop").hidden = false;
  $("send").disabled = true;
  let drawn = 0;
  let queued = 0;
  const draw = () => {
    queued = 0;
    drawn = performance.now();
    show(result);
  };
  try {
    const end = await streamChat(request, key(), controller.signal, (delta) => {
      const now = performance.now();
      if (delta.content || delta.reasoning_content) {
        result.first ||= now;
        result.last = now;
        ++result.pieces;
      }
      result.content += delta.content ?? "";
      result.reasoning += delta.reasoning_content ?? "";
      queued ||= setTimeout(draw, Math.max(0, 80 - (now - drawn)));
    });
    Object.assign(result, end);
  } catch (error) {
    if (error.name !== "AbortError") {
      result.error = error;
    } else {
      result.stopped = true;
    }
  } finally {
    clearTimeout(queued);
    running = null;
    $("stop").hidden = true;
    $("send").disabled = !canChat();
  }
  return result;
}

async function answer(parent) {
  if (running || !canChat()) return;
  notice("");
  const request = requestFor(parent);
  const node = store.add(parent, "assistant", "");
  const view = showAll();
  view.busy(true);
  $("status").textContent = "Waiting for the first token";
  announce("Answering");
  const result = await run(request, (part) => {
    node.content = part.content;
    node.reasoning = part.reasoning;
    const log = $("log");
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    view.show();
    if (follow) log.scrollTop = log.scrollHeight;
    const seconds = (part.last - part.first) / 1000;
    $("status").textContent = seconds > 0 ? `${part.pieces} pieces, ${(part.pieces / seconds).toFixed(1)} per second` : "";
    announce(`${part.content.length} characters so far`);
  });
  $("status").textContent = "";
  node.content = result.content;
  node.reasoning = result.reasoning;
  const tokens = result.usage?.completion_tokens ?? result.pieces;
  const seconds = (result.last - result.first) / 1000;
  node.meta = { seed: request.seed, fingerprint: result.fingerprint ?? "", tokens, prompt: result.usage?.prompt_tokens ?? 0, rate: seconds > 0 && tokens > 1 ? (tokens - 1) / seconds : 0, finish: result.stopped ? "stopped" : (result.finish ?? ""), model: request.model, request };
  if (result.error && !node.content) {
    store.drop(node);
  }
  keep();
  showAll();
  announce(result.error ? "The answer failed" : result.content.slice(0, 2000));
  if (result.error) explain(result.error, () => answer(parent));
}

const actions = {
  edit(node, text) {
    if (running || !text.trim() || !canChat()) return;
    const fresh = store.add(node.parent, node.role, text);
    keep();
    if (node.role === "user") answer(fresh.id);
    else showAll();
  },
  again(node) { answer(node.parent); },
  choose(node) {
    store.choose(node);
    keep();
    showAll();
  },
  // The promise made visible: the same request and seed give the same text, to the last bit.
  async sameBits(node, say) {
    if (running || !node.meta?.request || !canChat()) return;
    say("running again …");
    const result = await run(node.meta.request, () => {});
    if (result.error) {
      say("");
      explain(result.error);
      return;
    }
    if (result.stopped) return say("stopped");
    const same = result.content === node.content && result.reasoning === node.reasoning;
    const print = result.fingerprint === node.meta.fingerprint;
    let at = 0;
    while (at < node.content.length && node.content[at] === result.content[at]) ++at;
    say(same ? `same text, all ${node.content.length} characters${print ? ", same model" : ", though the model changed"}` : `differs from character ${at}${print ? "" : ": the model or its numbers changed"}`, !same);
  },
};

function stop() { running?.controller.abort(); }

// --- the rest of the page ---

function openSettings(open = $("settings").hidden) {
  $("settings").hidden = !open;
  $("settings-open").setAttribute("aria-expanded", String(open));
}

function closeMenu() {
  $("side").classList.remove("open");
  $("menu").setAttribute("aria-expanded", "false");
}

const chosenMeta = () => models.find((model) => model.id === $("model").value)?.meta;
// A model without a chat template can only complete texts.
const canChat = () => chosenMeta()?.chat !== false;

function showModel() {
  const meta = chosenMeta();
  $("server").textContent = meta ? `${Number(meta.n_params ?? 0).toLocaleString("en")} parameters, ${!meta.quantization || meta.quantization === "none" ? "float" : meta.quantization} weights` : "";
  const can = canChat();
  $("input").disabled = !can;
  $("send").disabled = !can || Boolean(running);
  $("why").hidden = can;
  $("why").textContent = can ? "" : "The server has no chat template for this model, so it cannot chat. It completes texts at /v1/completions; start the server with chat_template=FILE to chat.";
  const hint = document.querySelector("#log .empty");
  if (can ? !hint && !store.path().length : hint) showAll();
}

async function loadModels() {
  try {
    models = await listModels(key());
    const chosen = store.options.model;
    $("model").replaceChildren(...models.map((model) => new Option(model.parent ? `${model.id} (adapter of ${model.parent})` : String(model.id), String(model.id))));
    if (!models.length) $("model").replaceChildren(new Option("no models yet", ""));
    $("model").disabled = !models.length;
    if (models.some((model) => model.id === chosen)) $("model").value = chosen;
    showModel();
    notice("");
  } catch (error) {
    explain(error, loadModels);
  }
}

function keepOptions() {
  const options = { model: $("model").value, system: $("system").value, theme: $("theme").value };
  for (const input of document.querySelectorAll("[data-option]")) options[input.dataset.option] = input.value;
  store.options = options;
  keep();
}

function applyTheme() {
  if ($("theme").value) document.documentElement.dataset.theme = $("theme").value;
  else delete document.documentElement.dataset.theme;
}

function loadOptions() {
  $("system").value = String(store.options.system ?? "");
  $("theme").value = ["light", "dark"].includes(store.options.theme) ? store.options.theme : "";
  for (const input of document.querySelectorAll("[data-option]")) input.value = String(store.options[input.dataset.option] ?? "");
  // The key lives as long as the tab.
  $("key").value = sessionStorage.getItem("octavo.key") ?? "";
  applyTheme();
}

function wire() {
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("input").value;
    if (running || !text.trim() || !canChat()) return;
    $("input").value = "";
    const node = store.add(store.path().at(-1)?.id ?? "", "user", text);
    keep();
    answer(node.id);
  });
  $("input").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("form").requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (running) stop();
    else if ($("side").classList.contains("open")) closeMenu();
    else if (!$("settings").hidden) openSettings(false);
  });
  $("stop").addEventListener("click", stop);
  $("new").addEventListener("click", () => {
    stop();
    store.start();
    showAll();
    closeMenu();
    $("input").focus();
  });
  $("menu").addEventListener("click", () => $("menu").setAttribute("aria-expanded", String($("side").classList.toggle("open"))));
  $("settings-open").addEventListener("click", () => openSettings());
  $("settings").addEventListener("change", () => {
    sessionStorage.setItem("octavo.key", key());
    keepOptions();
    applyTheme();
  });
  $("key").addEventListener("change", loadModels);
  $("model").addEventListener("change", () => {
    keepOptions();
    showModel();
  });
  $("export").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([store.export()], { type: "application/json" }));
    link.download = "octavo-chats.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  $("import").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", async () => {
    try {
      const count = store.import(await $("import-file").files[0].text());
      keep();
      showAll();
      announce(`${count} conversations came in`);
    } catch {
      notice("This file holds no conversations of this page.");
    }
    $("import-file").value = "";
  });
}

loadOptions();
wire();
showAll();
loadModels();
