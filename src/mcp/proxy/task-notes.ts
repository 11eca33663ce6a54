import { Transform, type TransformCallback } from "node:stream";
import { McpRefused } from "../json-rpc.ts";
import type { McpMessage } from "../message.ts";
import type { SessionRegister } from "./sessions.ts";

const member = '"taskId"';
/** A task's id as a member of an object; in text that quotes one, a backslash is before the quote. */
const named = /(?<!\\)"taskId"\s*:\s*("(?:[^"\\]|\\.){1,256}")/;
/** More bytes than such a member may have. */
const WINDOW = 2048;

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
export class TaskNotes extends Transform {
  readonly #sessions: SessionRegister;
  readonly #username: string;
  #tail = Buffer.alloc(0);
  #isFound = false;

  constructor(sessions: SessionRegister, username: string) {
    super();
    this.#sessions = sessions;
    this.#username = username;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    if (this.#isFound) done(null, chunk);
    else this.#look(chunk).then(() => done(null, chunk), done);
  }

  async #look(chunk: Buffer): Promise<void> {
    const seen = Buffer.concat([this.#tail, chunk]);
    this.#tail = seen.subarray(-WINDOW);
    if (!seen.includes(member)) return;
    const [, id] = named.exec(seen.toString("utf8")) ?? [];
    if (id === undefined) return;
    this.#isFound = true;
    await this.#sessions.open(taskKey(readId(id)), this.#username);
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
