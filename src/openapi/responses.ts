/** What each route may answer, by status: its success, its refusals, and what others say. */
import { STATUS_CODES } from "node:http";
import type { Endpoint } from "../gateway/route.ts";
import type { Schema } from "../query/kind.ts";
import { queryRefusals } from "../query/refusal.ts";
import { type RefusalCode, refusals } from "../refusal.ts";
import { type Operation, operations } from "./routes.ts";
import { ref } from "./schemas.ts";

type Codes = Readonly<Record<number, readonly string[]>>;

/** What any request may meet, whatever it asks for. */
const everywhere = [
  ...(["bad_request", "several_authorization_headers", "host_not_allowed"] as const),
  ...(["origin_not_allowed", "request_timeout", "headers_too_large", "internal_error"] as const),
];
const withToken = [
  ...(["unauthenticated", "token_invalid", "token_expired", "token_revoked"] as const),
  "user_gone" as const,
];
const withBody = ["unsupported_media_type", "body_too_large", "busy"] as const;

function authenticationRefusals({ authentication }: Endpoint): readonly RefusalCode[] {
  if (authentication === "public") return [];
  return authentication === "administration"
    ? [...withToken, "administration_disabled"]
    : withToken;
}

/** The codes of a body that is refused for what it says. */
function bodyRefusals(operation: Operation): readonly string[] {
  if (operation.body === undefined) return [];
  return operation === operations["POST /query"]
    ? Object.keys(queryRefusals)
    : ["invalid_body", "duplicate_key"];
}

function isRefusalCode(code: string): code is RefusalCode {
  return code in refusals;
}

/**
 * The codes that may come. Where MCP or OAuth are spoken, their words are for other documents, but
 * who is let in to `/mcp` is the gateway's to say.
 */
function refusalsOf(operation: Operation, endpoint: Endpoint): Iterable<string> {
  const isForeign = operation.others !== undefined && endpoint.authentication !== "data";
  if (isForeign) return endpoint.authentication === "mcp" ? withToken : [];
  return new Set<string>([
    ...everywhere,
    // A replica that may decide nothing still says that it lives.
    ...(operation === operations["GET /healthz"] ? [] : ["store_unreachable"]),
    ...authenticationRefusals(endpoint),
    ...(endpoint.bodyLimit === undefined ? [] : withBody),
    ...bodyRefusals(operation),
    ...(operation.refusals ?? []),
  ]);
}

/** The codes that may come, by the status that they come with. */
function codesOf(operation: Operation, endpoint: Endpoint): Codes {
  const byStatus: Record<number, string[]> = {};
  for (const code of refusalsOf(operation, endpoint)) {
    const status = isRefusalCode(code) ? refusals[code][0] : 400;
    byStatus[status] = [...(byStatus[status] ?? []), code];
  }
  return byStatus;
}

/** A body of JSON. */
export const json = (schema: Schema) => ({ "application/json": { schema } });

function refusalResponses(operation: Operation, endpoint: Endpoint) {
  return Object.entries(codesOf(operation, endpoint)).map(([status, codes]) => {
    // What waits for an approval is not refused yet.
    const shape = ref(Number(status) < 400 ? "Pending" : "Refusal");
    const schema = { allOf: [shape], properties: { code: { enum: codes } } };
    const description = STATUS_CODES[status] ?? status;
    return [status, { description, content: json(schema) }] as const;
  });
}

/** The `responses` of an operation. */
export function responses(operation: Operation, endpoint: Endpoint) {
  const { status = 200, answer, notReady, others } = operation;
  return Object.fromEntries([
    ...(answer === undefined
      ? []
      : [[String(status), { description: "Success.", content: json(answer) }] as const]),
    ...refusalResponses(operation, endpoint),
    ...(notReady === undefined
      ? []
      : [["503", { description: "Not ready.", content: json(notReady) }] as const]),
    ...(others === undefined ? [] : [["default", { description: others }] as const]),
  ]);
}
