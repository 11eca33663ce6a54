import type { BodyFilter } from "../../upstream/pooled-proxy.ts";
import { McpRefused } from "../json-rpc.ts";
import type { McpMessage } from "../message.ts";
import type { SessionRegister } from "./sessions.ts";

const member = '"taskId"';
/** A task's id as a member of an object; in text that quotes one, a backslash is before the quote. */
const named = /(?<!\\)"taskId"\s*:\s*("(?:[^"\\]|\\.){1,256}")/;
/** More bytes than such a member may have. */
const WINDOW = 2048;
const nothing = Buffer.alloc(0);

/** Before the id of a task where sessions are known by theirs: no header can say it. */
const mark = "\n";

/** What a task is known by among sessions. */
export function taskKey(id: string): string {
  return `${mark}${id}`;
}

/** Whose sessions and tasks are, each with bounds of their own. */
export function ownersOf(sessions: SessionRegister, tasks: SessionRegister): SessionRegister {
  const registerOf = (id: string) => (id.startsWith(mark) ? tasks : sessions);
  return {
    open: (id, username) => registerOf(id).open(id, username),
    use: (id, username) => registerOf(id).use(id, username),
    end: (id) => registerOf(id).end(id),
  };
}

/**
 * Passes the answer of a tool on as it is, and makes the task that it names first the caller's,
 * before the client learns of it. One that is another user's already stays so.
 */
export class TaskNotes implements BodyFilter {
  readonly #sessions: SessionRegister;
  readonly #username: string;
  #tail = nothing;
  #isFound = false;

  constructor(sessions: SessionRegister, username: string) {
    this.#sessions = sessions;
    this.#username = username;
  }

  pass(piece: Buffer): Buffer | Promise<Buffer> {
    if (this.#isFound) return piece;
    const seen = this.#tail.length === 0 ? piece : Buffer.concat([this.#tail, piece]);
    this.#tail = Buffer.from(seen.subarray(-WINDOW));
    const [, id] = (seen.includes(member) && named.exec(seen.toString("utf8"))) || [];
    if (id === undefined) return piece;
    this.#isFound = true;
    const opened = this.#sessions.open(taskKey(readId(id)), this.#username);
    return opened instanceof Promise ? opened.then(() => piece) : piece;
  }

  end(): Buffer {
    return nothing;
  }
}

/** The text of a JSON string; what is none is nobody's id. */
function readId(json: string): string {
  try {
    return String(JSON.parse(json));
  } catch {
    return "";
  }
}

/**
 * A task is for the user whose call it came of.
 *
 * @throws McpRefused `invalidParams`, as for a task that there is not
 */
export async function requireOwnTask(
  sessions: SessionRegister,
  { method, name, id }: McpMessage,
  username: string,
): Promise<void> {
  if (!method.startsWith("tasks/") || name === undefined) return;
  if (await sessions.use(taskKey(name), username)) return;
  throw new McpRefused("invalidParams", "Invalid params: Task not found", { status: 200, id });
}
