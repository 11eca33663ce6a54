import * as z from "zod";
import { planAddUser } from "../../access/administration.ts";
import { isDatabaseOrEvery, isEmail, isUsername } from "../../access/names.ts";
import { isRole } from "../../access/roles.ts";
import { viewUser } from "../../access/snapshot.ts";
import { hashPassword, requireUsablePassword } from "../../identity/password.ts";
import { Refusal } from "../../refusal.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import type { Endpoint } from "../route.ts";

const shape = z.strictObject({
  username: z.string(),
  email: z.string().nullish(),
  password: z.string(),
  role: z.string(),
  database: z.string().optional(),
});

function readUser(body: Buffer, defaultDatabase: string) {
  const { username, email, password, role, database = defaultDatabase } = parseBody(body, shape);
  if (!isUsername(username)) throw new Refusal("invalid_username");
  if (email != null && !isEmail(email)) throw new Refusal("invalid_email");
  if (!isRole(role)) throw new Refusal("invalid_role");
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  requireUsablePassword(password);
  return { username, email: email ?? undefined, password, grant: { database, role } };
}

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const { default_database: defaultDatabase } = gateway.configuration.auth;
  const { username, email, password, grant } = readUser(body, defaultDatabase);
  const record = { username, email, passwordHash: undefined, disabled: false, tokensValidAfter: 0 };
  // Judged once before the hash, so that nobody without the right buys its work.
  planAddUser(gateway.access.snapshot, requireCaller(exchange).actor, record, grant);
  const passwordHash = await hashPassword(password, gateway.login.costs);
  const user = { ...record, passwordHash };
  const snapshot = await changeAccess(gateway, exchange, (current, actor) =>
    planAddUser(current, actor, user, grant),
  );
  sendSuccess(exchange, 201, { user: viewUser(snapshot, user) });
}

/** `POST /api/users`: a new user with a first grant. */
export const createUser: Endpoint = {
  door: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  handle,
};
