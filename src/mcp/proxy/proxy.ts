import type { IncomingMessage, ServerResponse } from "node:http";
import type { UpwardRequest } from "../../observe/request-trace.ts";
import type { HeaderPolicy } from "../../upstream/headers.ts";
import { createReverseProxy } from "../../upstream/reverse-proxy.ts";
import { type Answering, sendMcpRefusal } from "../answering.ts";
import { McpRefused } from "../json-rpc.ts";
import type { Principal } from "../principal.ts";
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
import { createToolPolicy, type Rights, type ToolRule } from "./tool-policy.ts";

/** The head of an answer, and the method of its request. */
interface AnswerHead {
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
async function noteSession(
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
export interface McpExchange extends Answering, Origin {
  readonly rights: Rights;
  /** Told that the request goes up; if requests are traced, its headers name the span of that. */
  goUp?(upward: UpwardRequest): void;
}

/** Stands in front of a foreign MCP server. */
export interface McpProxy {
  /**
   * Judges one request and carries it to the server. Resolves when the answer has gone out or
   * broken off.
   *
   * @param body the whole body of a POST; undefined for GET and DELETE
   * @throws Refusal `insufficient_scope`, `upstream_unreachable`, `upstream_broken` or
   *   `upstream_timeout`, as long as nothing of an answer has gone out
   */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    body: Buffer | undefined,
    principal: Principal,
    exchange: McpExchange,
  ): Promise<void>;
  close(): void;
}

export interface McpProxyOptions {
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

/** Creates the proxy; nothing is connected until it is needed. */
export function createMcpProxy(options: McpProxyOptions): McpProxy {
  const { sessions = new Sessions(), streams = new OpenStreams() } = options;
  const { connectTimeout, responseTimeout, sessionTouch = usualLimits.idle / 4 } = options;
  const url = new URL(options.target);
  const path = `${url.pathname}${url.search}`;
  const { authorization } = options;
  const headerPolicy = { ...options.headers, forwardAuthorization: false, authorization };
  const policy = createToolPolicy(options.policy);
  const target = { origin: url.origin, socketPath: undefined };
  const proxy = createReverseProxy({ target, connectTimeout, responseTimeout });

  return {
    async handle(request, response, body, principal, exchange) {
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
      exchange.goUp?.({ method: request.method ?? "", headers, target: url.origin });
      await proxy.forward({
        request,
        response,
        path,
        headers,
        answerHeaders: exchange.answerHeaders(),
        ...(body === undefined ? {} : { body }),
        receive: async (answer) => {
          const head = { method: request.method ?? "", answer };
          const sessionId = await noteSession(sessions, head, judged);
          const isCall = judged.message?.method === "tools/call";
          const notes = isCall ? new TaskNotes(sessions, judged.identity.username) : undefined;
          return receive(answer, { show, sessionId, notes });
        },
      });
    },
    close: () => proxy.close(),
  };
}
