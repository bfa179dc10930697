/** Requests of HTTP to the gateway. */
import { learnRole, sessionIsOver } from "./session.js";

const TIMEOUT_MS = 35_000;
/** What a proxy answers in place of the gateway, whose own answers have a code. */
const PROXY_STATUSES = [502, 503, 504];

/** Where the gateway's routes begin: beside the page's folder, so that a proxy may add a path. */
const ROOT = new URL("../", document.baseURI);

/** What the gateway answered in place of what was asked for. */
export class Problem extends Error {
  /** @param {object} fields as in RFC 9457, and `code`, `object`, `limit`, `value`, `next` */
  constructor(fields) {
    super(fields.message || fields.detail || fields.title || "the server refused it");
    this.status = fields.status ?? 0;
    this.code = fields.code ?? "";
    this.object = fields.object;
    this.limit = fields.limit;
    this.value = fields.value;
    this.next = fields.next ?? "";
  }

  /** Whether nobody answered, a proxy alone, or the gateway does not reach its server. */
  get isLost() {
    if (this.status === 0 || this.code === "server") return true;
    return PROXY_STATUSES.includes(this.status) && !this.code;
  }
}

/** The whole address of a route such as "v1/info". */
export function addressOf(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** The JSON of a route. @throws {Problem} */
export async function read(path, query) {
  const answer = await send(addressOf(path, query), { headers: { accept: "application/json" } });
  return jsonOf(answer);
}

/** The objects of a route that answers with one a line. @throws {Problem} */
export async function readLines(path, query) {
  const answer = await send(addressOf(path, query), { headers: { accept: "application/x-ndjson" } });
  return whole(async () => {
    const lines = (await answer.text()).split("\n");
    return lines.filter(Boolean).map((line) => JSON.parse(line));
  });
}

/** Do something. @throws {Problem} */
export async function act(path, body) {
  const headers = { "content-type": "application/json" };
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await send(addressOf(path), { method: "POST", headers, body: text });
  return answer.status === 204 ? null : jsonOf(answer);
}

/** Open a session with a token. @throws {Problem} */
export async function login(token) {
  await act("login", { token });
}

/** End the session, in other tabs too. @throws {Problem} */
export async function logout() {
  await act("logout");
  sessionIsOver();
}

async function send(url, options) {
  let answer;
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    answer = await fetch(url, { cache: "no-store", credentials: "same-origin", signal, ...options });
  } catch {
    throw new Problem({ message: "The server cannot be reached.", code: "lost" });
  }
  if (answer.ok) return answer;
  throw await problemOf(answer);
}

function jsonOf(answer) {
  return whole(() => answer.json());
}

/** What is read of an answer. @throws {Problem} */
async function whole(take) {
  try {
    return await take();
  } catch {
    throw new Problem({ message: "The answer was cut off, or is not the server's.", code: "lost" });
  }
}

async function problemOf(answer) {
  let fields = {};
  try {
    fields = await answer.json();
  } catch {
    // A proxy's page: the status is all that it says.
    fields = { message: `The server answered ${answer.status}.` };
  }
  const problem = new Problem({ ...fields, status: answer.status });
  if (answer.status === 401) sessionIsOver();
  if (answer.status === 403) learnRole(problem);
  return problem;
}
