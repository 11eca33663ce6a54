import * as z from "zod";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { logIn } from "../../identity/login.ts";
import { isPlainName } from "../../query/names.ts";
import { Refusal } from "../../refusal.ts";
import { sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import { type Exchange, nobody } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { loginOrigin } from "../peer.ts";
import type { Endpoint } from "../route.ts";

const shape = z.strictObject({
  username: z.string(),
  password: z.string(),
  database: z.string().optional(),
});

/** The user as the audit may show it: text that is no user's name may be a mistyped password. */
function auditAttempt(gateway: Gateway, exchange: Exchange, username: string): void {
  const operation = {
    operation: "login",
    database: "",
    tables: [],
    role: undefined,
    entry: undefined,
  };
  exchange.verdict.ask([operation]);
  if (gateway.access.snapshot.users.has(username)) {
    exchange.authenticated = { ...nobody, username };
  }
}

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const { username, password, database } = parseBody(body, shape);
  // `*` asks for what leaving it out gives.
  const limit = database === EVERY_DATABASE ? undefined : database;
  if (limit !== undefined && !isPlainName(limit)) throw new Refusal("invalid_database");
  auditAttempt(gateway, exchange, username);
  const request = { username, password, database: limit };
  const origin = loginOrigin(exchange.peer, exchange.request);
  const { token, expiresIn } = await logIn(gateway.login, request, origin);
  exchange.verdict.allow();
  sendSuccess(exchange, 200, { token, expires_in: expiresIn });
}

/** `POST /login`: a username and a password for a token. */
export const login: Endpoint = { authentication: "public", bodyLimit: SMALL_BODY_BYTES, handle };
