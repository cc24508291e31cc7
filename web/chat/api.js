// The server's API as the page needs it: models, and chat answers as streams. Every failure is an ApiError with what to
// tell the user.

export class ApiError extends Error {
  constructor(status, message, retry = 0) {
    super(message);
    this.status = status;
    this.retry = retry; // seconds after which to try again; 0: do not
  }
}

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

async function explain(response, withKey) {
  let message = "";
  let code = "";
  try {
    const body = await response.json();
    message = String(body?.error?.message ?? "");
    code = String(body?.error?.code ?? "");
  } catch {
    // Not ours; the status must do.
  }
  const retry = Math.min(60, Math.max(1, Number(response.headers.get("retry-after")) || 3));
  if (response.status === 401) return new ApiError(401, withKey ? "The server does not accept this API key." : "This server asks for an API key. Enter it in the settings.");
  if (response.status === 429) return new ApiError(429, `The server is busy. Next try in ${retry} s.`, retry);
  if (response.status === 503) {
    const what = code === "draining" ? "The server is shutting down." : code === "loading" ? "The model is still being loaded." : "The server is not available.";
    return new ApiError(503, `${what} Next try in ${retry} s.`, retry);
  }
  return new ApiError(response.status, message || `The server answered ${response.status}.`);
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw await explain(response, Boolean(options.headers.Authorization));
  return response;
}

export async function listModels(key) {
  const body = await (await call("v1/models", { headers: headers(key) })).json();
  return Array.isArray(body?.data) ? body.data : [];
}

// Sends a chat request and calls `take(delta, chunk)` for each piece. Returns {usage, fingerprint, finish}.
export async function streamChat(request, key, signal, take) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const result = { usage: null, fingerprint: "", finish: "" };
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    buffer += value;
    const lines = buffer.split("\n");
    buffer = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return result;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(500, String(chunk.error.message ?? "The answer broke off."));
      if (chunk.system_fingerprint) result.fingerprint = chunk.system_fingerprint;
      if (chunk.usage) result.usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (choice?.finish_reason) result.finish = choice.finish_reason;
      if (choice?.delta) take(choice.delta);
    }
  }
  if (!result.finish) throw new ApiError(0, "The connection ended before the answer did.");
  return result;
}
