import type { McpScope } from "../oauth/server/protocol.ts";
import { Refusal } from "../refusal.ts";
import type { Principal } from "./authenticate.ts";
import { McpRefused } from "./json-rpc.ts";
import type { McpMessage } from "./message.ts";
import type { Era } from "./protocol-headers.ts";

/**
 * The protocol's methods, all revisions together, each with the scope that it needs, if it needs one. A method that
 * is not here is a server's own, and nobody knows what it would do: it goes nowhere.
 */
const scopes: ReadonlyMap<string, McpScope | undefined> = new Map([
  ...needing(undefined, "initialize", "ping", "server/discover", "logging/setLevel"),
  ...needing(undefined, "subscriptions/listen"),
  ...needing("mcp:tools", "tools/list", "tools/call", "tasks/get", "tasks/list", "tasks/result"),
  ...needing("mcp:tools", "tasks/update", "tasks/cancel"),
  ...needing("mcp:resources", "prompts/list", "prompts/get", "completion/complete"),
  ...needing("mcp:resources", "resources/list", "resources/templates/list", "resources/read"),
  ...needing("mcp:resources", "resources/subscribe", "resources/unsubscribe"),
]);

function needing(scope: McpScope | undefined, ...methods: readonly string[]) {
  return methods.map((method) => [method, scope] as const);
}

const notifications: ReadonlySet<string> = new Set([
  "notifications/initialized",
  "notifications/cancelled",
  "notifications/progress",
  "notifications/roots/list_changed",
  "notifications/tasks/status",
]);

/**
 * The status of a message with a method that nobody knows. In revisions with sessions 404 says that
 * the session is lost, so there the error alone tells, and a notification is taken and not answered.
 */
function statusOfUnknown({ kind }: McpMessage, era: Era): number {
  if (era === "stateless") return 404;
  return kind === "notification" ? 202 : 200;
}

/**
 * Judges a message by its method and the token's scopes.
 *
 * @throws McpRefused `methodNotFound`
 * @throws Refusal `insufficient_scope`, which names the scope that is missing
 */
export function requireMethod(message: McpMessage, principal: Principal, era: Era): void {
  const { kind, method, id } = message;
  if (kind === "response") return;
  const isKnown = kind === "request" ? scopes.has(method) : notifications.has(method);
  if (!isKnown) {
    const options = { status: statusOfUnknown(message, era), id };
    throw new McpRefused("methodNotFound", "Method not found", options);
  }
  const scope = scopes.get(method);
  if (scope === undefined || principal.scopes.has(scope)) return;
  throw new Refusal("insufficient_scope", { scope });
}
