import type { BodyFilter } from "../../upstream/answer-stream.ts";
import { McpRefused } from "../json-rpc.ts";
import type { McpMessage } from "../message.ts";
import type { SessionRegister } from "./sessions.ts";

const member = '"taskId"';
/** A `taskId` member. In quoted JSON the quote follows a backslash. */
const named = /(?<!\\)"taskId"\s*:\s*("(?:[^"\\]|\\.){1,256}")/;
/** Larger than the longest `taskId` member, in bytes. */
const WINDOW = 2048;
const nothing = Buffer.alloc(0);

/**
 * Prefix of task ids in the session register. No header can contain it, so they never collide with
 * session ids.
 */
const mark = "\n";

export function taskKey(id: string): string {
  return `${mark}${id}`;
}

/** Combines two registers, so that sessions and tasks have separate limits. */
export function ownersOf(sessions: SessionRegister, tasks: SessionRegister): SessionRegister {
  const registerOf = (id: string) => (id.startsWith(mark) ? tasks : sessions);
  return {
    open: (id, username) => registerOf(id).open(id, username),
    use: (id, username) => registerOf(id).use(id, username),
    end: (id) => registerOf(id).end(id),
  };
}

/**
 * Passes a tool's response on unchanged. The first task that it names is assigned to the caller
 * before the client learns of it. A task of another user keeps its owner.
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

function readId(json: string): string {
  try {
    return String(JSON.parse(json));
  } catch {
    return "";
  }
}

/**
 * Only the user whose call created a task may access it.
 *
 * @throws McpRefused `invalidParams`, the same as for a task that does not exist
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
