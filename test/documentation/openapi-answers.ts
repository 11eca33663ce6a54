/** Requests to a running gateway that are held against docs/openapi.yaml, and so are the answers. */
import type { Test } from "tap";
import type { TestGateway } from "../kit/gateway.ts";
import { answerSchema, bodySchema } from "./openapi-kit.ts";

/** What is sent besides method and path. */
export interface Sent {
  /** The path, if the route has parameters. */
  readonly at?: string;
  readonly body?: unknown;
  readonly token?: string | undefined;
  readonly type?: string;
}

/** A request by its route in the document, and the status or the code that it is answered with. */
export type Case = readonly [route: string, expected: number | string, sent?: Sent];

/** Refusals of a body for what it says by itself, so that its schema must refuse it too. */
const badBodies: ReadonlySet<unknown> = new Set([
  ...[
    "invalid_body",
    "invalid_entry",
    "invalid_username",
    "invalid_database",
    "invalid_role",
    "invalid_email",
  ],
  ...["password_too_short", "unknown_field", "missing_field", "several_operations"],
  ...["unknown_operation", "invalid_name", "invalid_column", "batch_size", "wrong_type"],
  ...["not_an_object", "no_operation", "not_in_batch", "invalid_type", "invalid_value"],
]);

/** Sends a request; both it and its answer must be as the document says. */
export async function check(
  t: Test,
  gateway: TestGateway,
  [route, expected, { at, body, token, type = "application/json" } = {}]: Case,
): Promise<void> {
  const [method = "", path = ""] = route.split(" ");
  const answer = await gateway.request(at ?? path, {
    method,
    headers: {
      ...(body === undefined ? {} : { "content-type": type }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const what = `${route}: ${expected}`;
  const found = typeof expected === "number" ? answer.status : answer.body.code;
  t.equal(found, expected, `${what} (${answer.text.slice(0, 200)})`);
  const schema = answerSchema(route, answer.status);
  const isAsSaid = schema?.(answer.body) ?? false;
  t.ok(isAsSaid, `${what} is as the document says (${JSON.stringify(schema?.errors)})`);
  const takes = bodySchema(route);
  if (takes === undefined || body === undefined) return;
  if (typeof expected === "number") t.ok(takes(body), `${what} takes ${JSON.stringify(body)}`);
  if (badBodies.has(expected)) t.notOk(takes(body), `${what} is said of ${JSON.stringify(body)}`);
}
