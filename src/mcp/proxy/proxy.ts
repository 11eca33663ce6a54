import type { IncomingMessage, ServerResponse } from "node:http";
import type { UpwardRequest } from "../../observe/request-trace.ts";
import type { HeaderPolicy } from "../../upstream/headers.ts";
import { type AnswerHead, fieldIn } from "../../upstream/http1/answer-head.ts";
import { PooledProxy } from "../../upstream/pooled-proxy.ts";
import type { Principal } from "../authenticate.ts";
import { type Answering, McpRefused, sendMcpRefusal } from "../json-rpc.ts";
import {
  type Judged,
  judgeRequest,
  mayList,
  type Origin,
  upwardHeaders,
} from "./judged-request.ts";
import { receive } from "./reception.ts";
import { type SessionRegister, Sessions, usualLimits } from "./sessions.ts";
import { isSubscription, OpenStreams, type StreamRegister } from "./streams.ts";
import { TaskNotes, taskKey } from "./task-notes.ts";
import { type Rights, ToolPolicy, type ToolRule } from "./tool-policy.ts";

/** A session that begins becomes the caller's. @throws Error if it is another one's already */
async function beginSession(
  sessions: SessionRegister,
  id: string,
  { identity }: Judged,
): Promise<string> {
  if (await sessions.open(id, identity.username)) return id;
  throw new Error("the MCP server has given one session to two users");
}

/**
 * Notes what an answer says of sessions: one that begins becomes the caller's, one that is over
 * is forgotten.
 *
 * @returns the session that the client is told of
 */
function noteSession(
  sessions: SessionRegister,
  method: string,
  answer: AnswerHead,
  judged: Judged,
): undefined | string | Promise<string> {
  const { message, era, sessionId } = judged;
  if (era === "stateless") return undefined;
  const { status } = answer;
  const isSuccess = status >= 200 && status < 300;
  const isOver = status === 404 || (isSuccess && method === "DELETE");
  if (sessionId !== undefined && isOver) sessions.end(sessionId);
  const told = fieldIn(answer, "mcp-session-id");
  if (told === undefined) return undefined;
  if (message?.method === "initialize" && isSuccess) return beginSession(sessions, told, judged);
  return told === sessionId ? told : undefined;
}

/** Counts a session as used for as long as an answer in it is open, every `interval` milliseconds. */
function keepSession(
  sessions: SessionRegister,
  { sessionId, identity: { username } }: Judged,
  response: ServerResponse,
  interval: number,
): void {
  if (sessionId === undefined) return;
  // What cannot be noted now is noted the next time.
  const touch = async () => sessions.use(sessionId, username);
  const timer = setInterval(() => void touch().catch(() => {}), interval);
  response.once("close", () => clearInterval(timer));
}

/** What the gateway knows of a request besides the request itself. */
interface McpExchange extends Answering, Origin {
  readonly rights: Rights;
  /** Told that the request goes up; if requests are traced, its headers name the span of that. */
  goUp?(upward: UpwardRequest): void;
}

interface McpProxyOptions {
  /** The server's URL, with its path. */
  readonly target: string;
  /** The rules in force: another list once they have changed. */
  readonly policy: () => readonly ToolRule[];
  /** Neither the client's credential nor the database's goes up, whatever this says. */
  readonly headers: HeaderPolicy;
  /** The server's own credential, sent as its `Authorization` header. */
  readonly authorization?: string | undefined;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** Milliseconds to the head of an answer, and between two parts of one that is no event stream. */
  readonly responseTimeout: number;
  readonly sessions?: SessionRegister;
  /** Milliseconds between two moments at which an open stream counts as use of its session. */
  readonly sessionTouch?: number;
  readonly streams?: StreamRegister;
}

/** Stands in front of a foreign MCP server; nothing is connected until it is needed. */
export function createMcpProxy(options: McpProxyOptions) {
  const { sessions = new Sessions(), streams = new OpenStreams() } = options;
  const { connectTimeout, responseTimeout, sessionTouch = usualLimits.idle / 4 } = options;
  const url = new URL(options.target);
  const { authorization } = options;
  const headerPolicy = { ...options.headers, forwardAuthorization: false, authorization };
  const policy = new ToolPolicy(options.policy);
  const proxy = new PooledProxy({ url, connectTimeout, responseTimeout });

  return {
    /**
     * Judges one request and carries it to the server. Resolves when the answer has gone out or
     * broken off.
     *
     * @param body the whole body of a POST; undefined for GET and DELETE
     * @throws Refusal `insufficient_scope`, `upstream_unreachable`, `upstream_broken` or
     *   `upstream_timeout`, as long as nothing of an answer has gone out
     */
    async handle(
      request: IncomingMessage,
      response: ServerResponse,
      body: Buffer | undefined,
      principal: Principal,
      exchange: McpExchange,
    ): Promise<void> {
      const { rights } = exchange;
      let judged: Judged;
      try {
        judged = await judgeRequest({ policy, rights, sessions }, request, body, principal);
        keepSession(sessions, judged, response, sessionTouch);
        if (isSubscription(request, judged)) {
          await streams.open(principal.subject.username, response, judged.message?.id);
        }
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error, exchange);
        return;
      }
      const show = mayList(request, judged)
        ? {
            tools: (name: string) => policy.mayCall(rights, name),
            tasks: (id: string) => sessions.use(taskKey(id), principal.subject.username),
          }
        : undefined;
      const headers = upwardHeaders({ request, judged, body }, headerPolicy, exchange);
      const { method = "" } = request;
      exchange.goUp?.({ method, headers, target: url.origin });
      const isCall = judged.message?.method === "tools/call";
      const { username } = judged.identity;
      const notes = isCall ? new TaskNotes(sessions, username) : undefined;
      await proxy.forward({
        ...{ method, headers, body, response, answerHeaders: exchange.answerHeaders() },
        // What a call has done, nobody knows once its connection broke.
        isRepeatable: !isCall,
        receive: (answer) => {
          const noted = noteSession(sessions, method, answer, judged);
          const receiveIn = (sessionId?: string) => receive(answer, { show, sessionId, notes });
          return noted instanceof Promise ? noted.then(receiveIn) : receiveIn(noted);
        },
      });
    },
    close: (): void => proxy.close(),
  };
}
