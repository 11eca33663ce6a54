import type { IncomingMessage, ServerResponse } from "node:http";
import { createMcpHandler } from "@modelcontextprotocol/server";
import { quoteName } from "../json/fault.ts";
import type { Principal } from "./authenticate.ts";
import { type Answering, McpRefused, sendMcpRefusal } from "./json-rpc.ts";
import { type McpMessage, readMessageInSlices } from "./message.ts";
import { requireMethod } from "./methods.ts";
import { judgeHeaders } from "./protocol-headers.ts";
import { registerResources } from "./resources.ts";
import { withApproval } from "./tools/approval-argument.ts";
import { registerTool, type Taking, toolsOf } from "./tools/register.ts";
import type { Tool, ToolContext } from "./tools/tool.ts";
import {
  ObservedServer,
  ResultSlot,
  sendInPieces,
  sendWebResponse,
  toWebRequest,
  WebRequest,
} from "./web.ts";

interface EmbeddedMcpOptions<Caller extends Principal> extends ToolContext<Caller> {
  readonly serverVersion: string;
  /** Counts the call of a tool. @throws Refusal `rate_limited` */
  countCall?(caller: Caller): Promise<void> | undefined;
}

/** A request on its way through the protocol's library. */
interface Call<Caller> {
  readonly message: McpMessage | undefined;
  readonly principal: Caller;
  readonly answering: Answering;
  /** The tools that there are just now. */
  readonly tools: readonly Tool<Caller>[];
  readonly hasSchema: boolean;
  readonly slot: ResultSlot;
}

/** Bytes of a message that are none of a tool's arguments. */
const LARGEST_ENVELOPE = 16 * 1024;
const noArguments = Buffer.from("{}");

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
function visibleTools<Caller>(
  { mayUse, mayNeedApproval }: ToolContext<Caller>,
  { tools, message, principal }: Call<Caller>,
): readonly Tool<Caller>[] {
  // What is registered costs: a request gets the tools that its answer is about.
  if (message?.method === "tools/call") {
    return tools.filter(({ definition }) => definition.name === message.name);
  }
  if (message?.method !== "tools/list") return [];
  const visible = tools.filter(({ definition }) =>
    definition.permissions.every((permission) => mayUse(principal, permission)),
  );
  if (mayNeedApproval?.(principal) !== true) return visible;
  return visible.map((tool) =>
    tool.takesApproval ? { ...tool, definition: withApproval(tool.definition) } : tool,
  );
}

function createServer<Caller extends Principal>(
  options: EmbeddedMcpOptions<Caller>,
  call: Call<Caller>,
): ObservedServer {
  const { principal, message, answering, slot } = call;
  const server = new ObservedServer(
    { name: "gatehouse", title: "Gatehouse", version: options.serverVersion },
    { capabilities: { tools: { listChanged: false } }, instructions, cacheHints },
    answering.onRefused,
  );
  const args = message?.arguments ?? noArguments;
  const { onRefused } = answering;
  const isCall = message !== undefined && isToolCall(message);
  const taking: Taking = { take: (result) => slot.take(result), onRefused, isCall };
  for (const tool of visibleTools(options, call)) {
    registerTool(server, tool, { principal, arguments: args }, taking);
  }
  if (call.hasSchema && !isCall) {
    server.server.registerCapabilities({ resources: { listChanged: false } });
    registerResources(server, options.schema, principal);
  }
  return server;
}

/** @throws McpRefused for a call of a tool that there is not */
function requireTool(
  tools: readonly Pick<Tool<never>, "definition" | "isOfSchema">[],
  message: McpMessage,
): void {
  const { name, id } = message;
  if (!isToolCall(message) || name === undefined) return;
  if (tools.some(({ definition }) => definition.name === name)) return;
  const options = { status: 200, reason: "unknown_tool", id };
  throw new McpRefused("invalidParams", `Unknown tool: ${quoteName(name)}`, options);
}

function isToolCall({ kind, method }: McpMessage): boolean {
  return kind === "request" && method === "tools/call";
}

/**
 * The message as the protocol's library gets to see it: without a tool's arguments, which the
 * scanner alone judges, and which the library would go through in one go.
 *
 * @throws McpRefused if the rest is larger than that of any message
 */
function envelopeOf(body: Buffer, message: McpMessage): unknown {
  const args = isToolCall(message) ? message.arguments : undefined;
  const at = args === undefined ? body.length : args.byteOffset - body.byteOffset;
  const rest = body.subarray(at + (args?.length ?? 0));
  const envelope = [body.subarray(0, at), ...(args === undefined ? [] : [noArguments]), rest];
  const length = envelope.reduce((sum, part) => sum + part.length, 0);
  if (length <= LARGEST_ENVELOPE) return JSON.parse(Buffer.concat(envelope).toString("utf8"));
  const problem = `all but the arguments of a tool takes ${length} bytes; allowed: ${LARGEST_ENVELOPE}`;
  throw new McpRefused("invalidRequest", `Invalid request: ${problem}`, { id: message.id });
}

interface Sent {
  readonly message: McpMessage;
  readonly envelope: unknown;
}

/** Judges what was sent. @throws McpRefused, or Refusal `insufficient_scope` */
async function readCall(
  request: IncomingMessage,
  body: Buffer,
  principal: Principal,
): Promise<Sent | undefined> {
  if (request.method !== "POST") return undefined;
  const message = await readMessageInSlices(body);
  const era = judgeHeaders(request.headers, message);
  requireMethod(message, principal, era);
  return { message, envelope: envelopeOf(body, message) };
}

/** True if it makes a difference to the answer whether there is a schema. */
function concernsSchema(
  tools: readonly Pick<Tool<never>, "definition" | "isOfSchema">[],
  message: McpMessage | undefined,
): boolean {
  if (message?.method !== "tools/call") return message !== undefined;
  return tools.some(({ definition, isOfSchema }) => isOfSchema && definition.name === message.name);
}

/**
 * The MCP server of the gateway itself: the database's operations as tools. It keeps no sessions: every request of every revision is answered
 * by itself, and the caller's rights are those of that moment.
 */
export function createEmbeddedMcp<Caller extends Principal>(options: EmbeddedMcpOptions<Caller>) {
  const toolsNow = toolsOf(options);
  const handler = createMcpHandler(({ requestInfo }) => {
    const server = requestInfo instanceof WebRequest ? requestInfo.createServer?.() : undefined;
    if (server === undefined) throw new Error("A request without its caller");
    return server;
  });

  /** What the request asks for, and of what there is just now. @throws McpRefused or Refusal */
  async function openCall(
    message: McpMessage | undefined,
    principal: Caller,
    signal: AbortSignal,
  ): Promise<Omit<Call<Caller>, "answering" | "slot">> {
    const tools = toolsNow();
    // Where it cannot be said, whoever asks for more learns why.
    const hasSchema =
      concernsSchema(tools, message) &&
      (await options.schema.isOffered(principal, signal)) !== false;
    const available = hasSchema ? tools : tools.filter(({ isOfSchema }) => !isOfSchema);
    if (message !== undefined) requireTool(available, message);
    return { message, principal, tools: available, hasSchema };
  }

  return {
    /**
     * Answers one request. Resolves when the answer has gone out or broken off.
     *
     * @param body the whole body; empty for GET and DELETE
     * @throws Refusal `insufficient_scope`
     */
    async handle(
      request: IncomingMessage,
      response: ServerResponse,
      body: Buffer,
      principal: Caller,
      answering: Answering,
    ): Promise<void> {
      const webRequest = toWebRequest(request, response);
      const slot = new ResultSlot();
      let sent: Sent | undefined;
      try {
        sent = await readCall(request, body, principal);
        if (sent !== undefined && isToolCall(sent.message)) await options.countCall?.(principal);
        const call = await openCall(sent?.message, principal, webRequest.signal);
        webRequest.createServer = () => createServer(options, { ...call, answering, slot });
      } catch (error) {
        if (!(error instanceof McpRefused)) throw error;
        sendMcpRefusal(response, error, answering);
        return;
      }
      const parsed = sent === undefined ? {} : { parsedBody: sent.envelope };
      const answer = await handler.fetch(webRequest, parsed);
      // What the library refuses before a server is asked has a status alone.
      const reason = answer.status === 405 ? "method_not_allowed" : "bad_request";
      if (answer.status >= 400) answering.onRefused(reason);
      const isWhole = sent !== undefined && isToolCall(sent.message);
      if (isWhole) await sendInPieces(answer, response, answering.answerHeaders, slot);
      else await sendWebResponse(answer, response, answering.answerHeaders);
    },
    close: (): Promise<void> => handler.close(),
  };
}
