import type { IncomingMessage, ServerResponse } from "node:http";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { type McpMessage, readMessage } from "./body.ts";
import { judgeHeaders } from "./headers.ts";
import { McpRefused, sendMcpRefusal } from "./json-rpc.ts";
import { requireMethod } from "./methods.ts";
import type { Principal } from "./principal.ts";
import { registerResources } from "./resources.ts";
import { registerTool, type Tool, type ToolContext, toolsOf } from "./tools/register.ts";
import { sendWebResponse, toWebRequest } from "./web.ts";

/** The MCP server of the gateway itself: the database's operations as tools. */
export interface EmbeddedMcp {
  /**
   * Answers one request. Headers that are set on the response already stay. Resolves when the
   * answer has gone out or broken off.
   *
   * @param body the whole body; empty for GET and DELETE
   * @throws Refusal `insufficient_scope`
   */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    body: Buffer,
    principal: Principal,
  ): Promise<void>;
  close(): Promise<void>;
}

export interface EmbeddedMcpOptions extends ToolContext {
  readonly serverVersion: string;
}

/** A request on its way through the protocol's library. */
interface Call {
  readonly message: McpMessage | undefined;
  readonly principal: Principal;
}

/** Answers differ by caller, so no cache may hand one's to another; they go stale with a grant. */
const ownAnswer = { ttlMs: 0, cacheScope: "private" } as const;
const cacheHints = {
  "tools/list": ownAnswer,
  "prompts/list": ownAnswer,
  "resources/list": ownAnswer,
  "resources/templates/list": ownAnswer,
  "resources/read": ownAnswer,
  "server/discover": ownAnswer,
};

const instructions =
  "Tools and resources of a database behind an access-controlled gateway. What a call may do " +
  "depends on the caller's role on the database that it names; a denied call says which rule " +
  "denied it, and trying it again does not help.";

/** A list holds what the caller may use; a call of another tool learns why it is denied. */
function visibleTools(
  tools: readonly Tool[],
  { mayUse }: ToolContext,
  { message, principal }: Call,
): readonly Tool[] {
  if (message?.method === "tools/call") return tools;
  return tools.filter(({ definition }) => mayUse(principal, definition.permission));
}

function createServer(options: EmbeddedMcpOptions, tools: readonly Tool[], call: Call): McpServer {
  const { principal, message } = call;
  const server = new McpServer(
    { name: "gatehouse", title: "Gatehouse", version: options.serverVersion },
    { capabilities: { tools: { listChanged: false } }, instructions, cacheHints },
  );
  const args = message?.arguments ?? new Map();
  for (const tool of visibleTools(tools, options, call)) {
    registerTool(server, tool, { principal, arguments: args });
  }
  if (options.schema !== undefined) {
    server.server.registerCapabilities({ resources: { listChanged: false } });
    registerResources(server, options.schema, principal);
  }
  return server;
}

/** Judges what was sent. @throws McpRefused, or Refusal `insufficient_scope` */
function readCall(request: IncomingMessage, body: Buffer, principal: Principal): Call {
  if (request.method !== "POST") return { message: undefined, principal };
  const message = readMessage(body);
  judgeHeaders(request.headers, message);
  requireMethod(message, principal);
  return { message, principal };
}

/**
 * Creates the embedded server. It keeps no sessions: every request of every revision is answered
 * by itself, and the caller's rights are those of that moment.
 */
export function createEmbeddedMcp(options: EmbeddedMcpOptions): EmbeddedMcp {
  const tools = toolsOf(options);
  const calls = new WeakMap<Request, Call>();
  const handler = createMcpHandler(({ requestInfo }) => {
    const call = requestInfo === undefined ? undefined : calls.get(requestInfo);
    if (call === undefined) throw new Error("A request without its caller");
    return createServer(options, tools, call);
  });

  return {
    async handle(request, response, body, principal) {
      let call: Call;
      try {
        call = readCall(request, body, principal);
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error);
        return;
      }
      const webRequest = toWebRequest(request, response);
      calls.set(webRequest, call);
      const parsedBody = call.message === undefined ? {} : { parsedBody: parse(body) };
      await sendWebResponse(await handler.fetch(webRequest, parsedBody), response);
    },
    close: () => handler.close(),
  };
}

function parse(body: Buffer): unknown {
  return JSON.parse(body.toString("utf8"));
}
