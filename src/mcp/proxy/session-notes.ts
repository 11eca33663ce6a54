import type { IncomingMessage, ServerResponse } from "node:http";
import type { Judged } from "./judge.ts";
import type { SessionRegister } from "./sessions.ts";

/** The head of an answer, and the method of its request. */
export interface AnswerHead {
  readonly method: string;
  readonly answer: IncomingMessage;
}

/**
 * Notes what an answer says of sessions: one that begins becomes the caller's, one that is over
 * is forgotten.
 *
 * @returns the session that the client is told of
 * @throws Error if the server behind has given one session to two users
 */
export async function noteSession(
  sessions: SessionRegister,
  { method, answer: { statusCode = 0, headers } }: AnswerHead,
  { message, era, sessionId, identity }: Judged,
): Promise<string | undefined> {
  if (era === "stateless") return undefined;
  const isSuccess = statusCode >= 200 && statusCode < 300;
  const isOver = statusCode === 404 || (isSuccess && method === "DELETE");
  if (sessionId !== undefined && isOver) sessions.end(sessionId);
  const told = headers["mcp-session-id"];
  if (typeof told !== "string") return undefined;
  if (message?.method !== "initialize" || !isSuccess) {
    return told === sessionId ? told : undefined;
  }
  if (await sessions.open(told, identity.username)) return told;
  throw new Error("the MCP server has given one session to two users");
}

/** Counts a session as used for as long as an answer in it is open, every `interval` milliseconds. */
export function keepSession(
  sessions: SessionRegister,
  { sessionId, identity: { username } }: Judged,
  response: ServerResponse,
  interval: number,
): void {
  if (sessionId === undefined) return;
  const timer = setInterval(() => void sessions.use(sessionId, username), interval);
  response.once("close", () => clearInterval(timer));
}
