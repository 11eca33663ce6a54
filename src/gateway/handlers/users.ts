import * as z from "zod";
import {
  manageableBy,
  maySeeGrants,
  planAddUser,
  planGrant,
  planPatchUser,
  planRemoveUser,
  planRevoke,
  requireManager,
} from "../../access/administration.ts";
import { type EntryPlace, readEntry, viewEntry } from "../../access/entry-view.ts";
import { isDatabaseOrEvery, isEmail, isUsername } from "../../access/identifiers.ts";
import { entryKeys } from "../../access/records.ts";
import { EVERY_DATABASE, isRole } from "../../access/roles.ts";
import {
  accessList,
  blankUser,
  firstNames,
  type Snapshot,
  unrecordedUsers,
  viewUser,
} from "../../access/snapshot.ts";
import type { Subject } from "../../access/subject.ts";
import { issuerPrefixes } from "../../config/schema.ts";
import { runCooperatively } from "../../cooperative-scheduling.ts";
import { hashClientOf } from "../../identity/login.ts";
import { hashPassword } from "../../identity/password.ts";
import { Refusal } from "../../refusal.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendList, sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import {
  databaseParameter,
  entryTableParameter,
  readPage,
  usernameParameter,
} from "../parameters.ts";
import { loginOrigin } from "../peer.ts";
import type { Endpoint } from "../route.ts";

const newUser = z.strictObject({
  username: z.string(),
  email: z.string().nullish(),
  password: z.string(),
  role: z.string(),
  database: z.string().optional(),
});

const patch = z
  .strictObject({ email: z.string().nullish(), disabled: z.boolean().optional() })
  .refine((fields) => Object.keys(fields).length > 0, "email or disabled must be given");

function readUser({ configuration, passwordRule }: Gateway, body: Buffer) {
  const { default_database: defaultDatabase } = configuration.auth;
  const { username, email, password, role, database = defaultDatabase } = parseBody(body, newUser);
  if (!isUsername(username)) throw new Refusal("invalid_username");
  if (email != null && !isEmail(email)) throw new Refusal("invalid_email");
  if (!isRole(role)) throw new Refusal("invalid_role");
  if (!isDatabaseOrEvery(database)) throw new Refusal("invalid_database");
  passwordRule(password);
  return { username, email: email ?? undefined, password, grant: { database, role } };
}

export const createUser: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const { username, email, password, grant } = readUser(gateway, body);
    const record = { ...blankUser(username), email };
    // Authorized before the password is hashed, so that unauthorized callers cannot cause that
    // work.
    planAddUser(gateway.access.snapshot, requireCaller(exchange).actor, record, grant);
    const { hashing, costs } = gateway.login;
    const client = hashClientOf(
      loginOrigin(exchange.peer, exchange.request),
      exchange.authenticated.username,
    );
    const passwordHash = await hashing.run([costs], client, (derive) =>
      hashPassword(password, costs, { derive }),
    );
    const user = { ...record, passwordHash };
    const snapshot = await changeAccess(gateway, exchange, (current, actor) =>
      planAddUser(current, actor, user, grant),
    );
    sendSuccess(exchange, 201, { user: viewUser(snapshot, user) });
  },
};

export const listUsers: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const { limit, after } = readPage(exchange);
    const { snapshot } = gateway.access;
    const { isManageable, view } = manageableBy(snapshot, requireCaller(exchange).actor);
    // One more item than the limit shows whether there is another page.
    const recorded = await runCooperatively(
      firstNames(snapshot.users, limit + 1, after, isManageable),
    );
    const unrecorded = new Map(
      unrecordedUsers(snapshot).map((name) => [name, { username: name }] as const),
    );
    const external = await runCooperatively(firstNames(unrecorded, limit + 1, after, isManageable));
    const names = [...recorded, ...external].sort();
    const page = names.slice(0, limit);
    const users = page.values().map((name) => view(snapshot.users.get(name) ?? blankUser(name)));
    exchange.verdict.allow();
    await sendList(exchange, "users", users, names.length > limit ? { next: page.at(-1) } : {});
  },
};

export const patchUser: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const username = usernameParameter(exchange);
    const fields = parseBody(body, patch);
    if (fields.email != null && !isEmail(fields.email)) throw new Refusal("invalid_email");
    const snapshot = await changeAccess(
      gateway,
      exchange,
      (current, actor) =>
        planPatchUser(current, actor, username, fields, issuerPrefixes(gateway.configuration)),
      fields.disabled === undefined ? undefined : username,
    );
    const user = snapshot.users.get(username) ?? blankUser(username);
    sendSuccess(exchange, 200, { user: viewUser(snapshot, user) });
  },
};

/** `DELETE /api/users/<u>`: removes the user with all grants and revokes the user's tokens. */
export const deleteUser: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const username = usernameParameter(exchange);
    await changeAccess(
      gateway,
      exchange,
      (current, actor) => planRemoveUser(current, actor, username),
      username,
    );
    sendSuccess(exchange, 200, {});
  },
};

const shape = z.strictObject({
  role: z.string(),
  ...Object.fromEntries(
    Object.keys(entryKeys)
      .filter((key) => key !== "tables")
      .map((key) => [key, z.unknown().optional()]),
  ),
});

function placeOf(exchange: Exchange): EntryPlace {
  const username = usernameParameter(exchange);
  const database = databaseParameter(exchange, [EVERY_DATABASE]);
  return { username, database, table: entryTableParameter(exchange) };
}

/**
 * The grants that `actor` may see, followed by undefined after each user so that long scans can
 * yield.
 */
function* visibleGrants(snapshot: Snapshot, actor: Subject): Generator<object | undefined> {
  for (const username of snapshot.grants.keys()) {
    for (const entry of accessList(snapshot, username)) {
      if (maySeeGrants(snapshot, actor, entry.database)) yield { username, ...entry };
    }
    yield undefined;
  }
}

export const listAccess: Endpoint = {
  authentication: "administration",
  handle(gateway, exchange) {
    const { snapshot } = gateway.access;
    const { actor } = requireCaller(exchange);
    requireManager(snapshot, actor);
    exchange.verdict.allow();
    return sendList(exchange, "access", visibleGrants(snapshot, actor));
  },
};

/** `PUT /api/access/<u>/<database>[/<table or pattern>]`: creates or replaces a grant. */
export const putAccess: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const place = placeOf(exchange);
    const grant = readEntry(place, parseBody(body, shape));
    await changeAccess(gateway, exchange, (current, actor) => planGrant(current, actor, grant));
    sendSuccess(exchange, 200, { access: [{ username: place.username, ...viewEntry(grant) }] });
  },
};

/** `DELETE` of the same paths: removes the grant, whatever its content. */
export const deleteAccess: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const { username, database, table } = placeOf(exchange);
    await changeAccess(gateway, exchange, (current, actor) =>
      planRevoke(current, actor, username, database, table),
    );
    sendSuccess(exchange, 200, {});
  },
};
