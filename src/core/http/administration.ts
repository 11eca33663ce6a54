import * as z from "zod";
import type { Plan, VersionStep } from "../access/access-rules.ts";
import {
  manageableBy,
  maySeeDecision,
  maySeeGrants,
  requireManager,
  requireSelfOrAdministrator,
  viewGroup,
  visibleBoundary,
  visibleGroups,
} from "../access/administration.ts";
import { type EffectiveAccess, effectiveAccess, viewEffective } from "../access/effective.ts";
import { entriesIn } from "../access/entries.ts";
import {
  accessList,
  accessOfUser,
  type EntryPlace,
  readEntry,
  viewEntry,
  viewUser,
} from "../access/entry-view.ts";
import {
  type Holder,
  holderText,
  type Subject,
  userHolder,
  writtenHolder,
} from "../access/grant.ts";
import { effectiveGrants, listLocalGroups } from "../access/groups.ts";
import { isAdministrator, questionSetting } from "../access/policy.ts";
import { type Change, latestIssue, userLosingTokens } from "../access/record-change.ts";
import { EVERY_DATABASE, isExternalUsername } from "../access/roles.ts";
import {
  blankUser,
  firstNames,
  isKnownHolder,
  type Snapshot,
  usersWithoutRecord,
} from "../access/snapshot.ts";
import { type Action, accountActions, actions, bodies } from "../administration/actions.ts";
import { runCooperatively } from "../base/cooperative-scheduling.ts";
import { Refusal } from "../base/refusal.ts";
import { type Authenticated, passwordFingerprint } from "../identity/authenticate.ts";
import { checkPassword, hashNewPassword, logIn } from "../identity/login.ts";
import type { IssuedToken } from "../identity/token.ts";
import { acceptedTokens, viewToken } from "../identity/token-file.ts";
import type { AuditedChange, Author } from "../observe/audit-line.ts";
import { isDatabaseName } from "../query/names.ts";
import { cutOnChange, sendList, sendSuccess } from "./answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "./body.ts";
import { describeChanges } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { loginOrigin } from "./origins.ts";
import {
  accessDatabaseParameter,
  type Endpoint,
  entryTableParameter,
  groupParameter,
  holderParameter,
  readAccessQuestion,
  readPage,
  tokenIdParameter,
  usernameParameter,
} from "./route.ts";

/** @throws Refusal `unauthenticated` if the request has no caller */
function requireCaller({ authenticated }: Exchange): Authenticated {
  if (authenticated.subject === undefined) throw new Refusal("unauthenticated");
  return authenticated;
}

function requireActor(exchange: Exchange): Subject {
  return requireCaller(exchange).subject;
}

function administrative(
  answer: (gateway: Gateway, exchange: Exchange, body: Buffer) => object | Promise<object>,
  { hasBody = false, status = 200 } = {},
): Endpoint {
  return {
    authentication: "administration",
    ...(hasBody ? { bodyLimit: SMALL_BODY_BYTES } : {}),
    async handle(gateway, exchange, body) {
      const fields = await answer(gateway, exchange, body);
      exchange.verdict.allow();
      sendSuccess(exchange, status, fields);
    },
  };
}

interface Listed {
  readonly items: Iterable<object | undefined>;
  readonly next?: string | undefined;
}

/** Lists what the caller may see. The list is cut once the caller's entries change. */
function listing(
  name: string,
  list: (gateway: Gateway, exchange: Exchange) => Listed | Promise<Listed>,
): Endpoint {
  return {
    authentication: "administration",
    async handle(gateway, exchange) {
      cutOnChange(gateway, exchange);
      const { items, next } = await list(gateway, exchange);
      exchange.verdict.allow();
      await sendList(exchange, name, items, next);
    },
  };
}

/** Returns the state as written, and the changes for the audit. */
export async function changeAs(
  { access, changes: journal, revocations }: Gateway,
  author: Author,
  plan: Plan,
): Promise<{ written: Snapshot; audited: AuditedChange[] }> {
  // Tokens stay dead even if an older access file is restored.
  const beforeWrite = async (changes: readonly Change[], step?: VersionStep) => {
    const username = userLosingTokens(changes);
    if (username !== undefined) {
      const latest = latestIssue(access.snapshot.users.get(username));
      await revocations.revokeUser(username, latest);
    }
    await journal.noteStep(step);
  };
  const { snapshot, changes } = await access.change(plan, { author, beforeWrite });
  const audited = describeChanges(changes);
  const user = userLosingTokens(changes);
  if (user !== undefined) audited.push({ change: "tokens revoked", user });
  return { written: snapshot, audited };
}

/**
 * Changes the access file on behalf of the caller. The caller is looked up again in the file read
 * under the lock, so a caller who has just lost their rights changes nothing.
 */
async function changeAccess(
  gateway: Gateway,
  exchange: Exchange,
  plan: (current: Snapshot, actor: Subject) => readonly Change[],
): Promise<Snapshot> {
  const caller = requireCaller(exchange);
  const { subject: actor } = caller;
  const planAsCaller = (current: Snapshot) => {
    caller.identify(current);
    return plan(current, actor);
  };
  const author = { kind: "api", name: actor.username } as const;
  const { written, audited } = await changeAs(gateway, author, planAsCaller);
  exchange.verdict.noteChanges(audited);
  return written;
}

function newHash({ login }: Gateway, exchange: Exchange, password: string): Promise<string> {
  const origin = loginOrigin(exchange.peer, exchange.request);
  return hashNewPassword(login, origin, exchange.username, password);
}

interface Changing<Input> {
  readonly read: (exchange: Exchange, body: Buffer) => Input;
  readonly view?: (written: Snapshot, input: Input) => object;
  readonly finish?: (gateway: Gateway, input: Input) => Promise<void>;
  readonly hasBody?: boolean;
}

function changing<Input>(
  { plan }: Action<Input>,
  { read, view = () => ({}), finish, hasBody = false }: Changing<Input>,
): Endpoint {
  return administrative(
    async (gateway, exchange, body) => {
      const input = read(exchange, body);
      const written = await changeAccess(gateway, exchange, (current, actor) =>
        plan(current, actor, input, gateway.configuration),
      );
      await finish?.(gateway, input);
      return view(written, input);
    },
    { hasBody },
  );
}

export const createUser = administrative(
  async (gateway, exchange, body) => {
    const { password, role, ...fields } = parseBody(body, bodies.addUser);
    const { database = gateway.configuration.auth.default_database, username } = fields;
    gateway.passwordRule(password);
    const user = { username, email: fields.email ?? undefined, grant: { database, role } };
    const { plan } = actions.addUser;
    plan(gateway.access.snapshot, requireActor(exchange), user, gateway.configuration);
    const passwordHash = await newHash(gateway, exchange, password);
    const written = await changeAccess(gateway, exchange, (current, subject) =>
      plan(current, subject, { ...user, passwordHash }, gateway.configuration),
    );
    return { user: viewWrittenUser(written, user) };
  },
  { hasBody: true, status: 201 },
);

function viewWrittenUser(snapshot: Snapshot, { username }: { readonly username: string }) {
  return viewUser(snapshot, snapshot.users.get(username) ?? blankUser(username));
}

export const listUsers: Endpoint = listing("users", async (gateway, exchange) => {
  const { limit, after } = readPage(exchange);
  const { snapshot } = gateway.access;
  const { isManageable, view } = manageableBy(snapshot, requireActor(exchange));
  // One more item than the limit shows whether there is another page.
  const firstOf = (usernames: Iterable<string>) =>
    firstNames(usernames, limit + 1, after, (name) => isManageable(userHolder(name)));
  const recorded = await runCooperatively(firstOf(snapshot.users.keys()));
  const external = await runCooperatively(firstOf(usersWithoutRecord(snapshot)));
  const names = [...recorded, ...external].sort();
  const page = names.slice(0, limit);
  const items = page.values().map((name) => view(snapshot.users.get(name) ?? blankUser(name)));
  return { items, next: names.length > limit ? page.at(-1) : undefined };
});

export const patchUser = changing(actions.patchUser, {
  hasBody: true,
  read: (exchange, body) => ({
    username: usernameParameter(exchange),
    ...parseBody(body, bodies.patchUser),
  }),
  view: (written, input) => ({ user: viewWrittenUser(written, input) }),
  // Also if the user was not disabled.
  async finish({ shared }, { username, disabled }) {
    if (disabled === false) await shared.throttle.unlock(username);
  },
});

export const deleteUser = changing(accountActions.remove, {
  read: (exchange) => ({ username: usernameParameter(exchange) }),
});

/**
 * `GET /api/users/<u>/access`: the entries of the user and of the user's local groups, with
 * `?effective=true` what they allow together. `?groups=` names groups of the user's token.
 */
export const userAccess: Endpoint = listing("access", (gateway, exchange) => {
  const username = usernameParameter(exchange);
  const { snapshot } = gateway.access;
  const actor = requireActor(exchange);
  const isOwn = username === actor.username;
  const { isEffective, groups } = readAccessQuestion(exchange);
  const isVisible = isOwn
    ? (database: string) => isOpenTo(actor, database)
    : requireVisible(snapshot, actor, userHolder(username));
  const caller = isOwn ? actor : { username, groups };
  const view = { snapshot, actor };
  const viewVisible = ({ boundary, ...row }: EffectiveAccess) =>
    viewEffective({ ...row, ...(boundary && { boundary: visibleBoundary(view, boundary) }) });
  const items = isEffective
    ? effectiveAccess(snapshot, caller, questionSetting(gateway.configuration))
        .filter((row) => isVisible(row.database) && (isOwn || maySeeDecision(view, caller, row)))
        .map(isOwn ? viewEffective : viewVisible)
    : accessOfUser(snapshot, username).filter(({ database }) => isVisible(database));
  return { items };
});

/** @throws Refusal `user_not_found` for users whom the actor may not manage */
function requireVisible(snapshot: Snapshot, actor: Subject, holder: Holder) {
  const { isManageable, isVisible } = manageableBy(snapshot, actor);
  const isNamed = listLocalGroups(snapshot, holderText(holder)).length > 0;
  if (isManageable(holder) && (isNamed || isKnownHolder(snapshot, holder))) return isVisible;
  throw new Refusal("user_not_found");
}

function readEntryPlace(exchange: Exchange): EntryPlace {
  const holder = holderParameter(exchange);
  const database = accessDatabaseParameter(exchange);
  return { holder, database, table: entryTableParameter(exchange) };
}

/** Yields undefined after each user, so that long scans can pause. */
function* visibleGrants(snapshot: Snapshot, actor: Subject): Generator<object | undefined> {
  for (const holder of snapshot.grants.keys()) {
    for (const entry of accessList(snapshot, holder)) {
      if (maySeeGrants(snapshot, actor, entry.database))
        yield { ...writtenHolder(holder), ...entry };
    }
    yield undefined;
  }
}

export const listAccess: Endpoint = listing("access", ({ access: { snapshot } }, exchange) => {
  const actor = requireActor(exchange);
  requireManager(snapshot, actor);
  return { items: visibleGrants(snapshot, actor) };
});

export const listGroups: Endpoint = listing("groups", ({ access: { snapshot } }, exchange) => ({
  items: visibleGroups(snapshot, requireActor(exchange)),
}));

export const putGroup = changing(actions.setGroup, {
  hasBody: true,
  read: (exchange, body) => ({
    name: groupParameter(exchange),
    ...parseBody(body, bodies.setGroup),
  }),
  view: (written, { name }) => ({ group: viewGroup(written, name) }),
});

export const deleteGroup = changing(actions.removeGroup, {
  read: (exchange) => ({ name: groupParameter(exchange) }),
});

/** `PUT /api/access/<u>/<database>[/<table or pattern>]` and the same for groups: sets an entry. */
export const putAccess = changing(actions.grant, {
  hasBody: true,
  read: (exchange, body) => ({
    grant: readEntry(readEntryPlace(exchange), parseBody(body, bodies.grant)),
  }),
  view: (_, { grant }) => ({ access: [{ ...writtenHolder(grant.holder), ...viewEntry(grant) }] }),
});

export const deleteAccess = changing(actions.revoke, { read: readEntryPlace });

const credentials = z.strictObject({
  username: z.string(),
  password: z.string(),
  database: z.string().optional(),
});

export const login: Endpoint = {
  authentication: "public",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const { username, password, database } = parseBody(body, credentials);
    // `*` means the same as no database.
    const limit = database === EVERY_DATABASE ? undefined : database;
    if (limit !== undefined && !isDatabaseName(limit)) throw new Refusal("invalid_database");
    const attempt = { operation: "login", database: "", tables: [] };
    exchange.verdict.record([{ ...attempt, role: undefined, entry: undefined }]);
    // Text that is not the name of a user may be a mistyped password.
    if (gateway.access.snapshot.users.has(username)) {
      exchange.claimedName = username;
    }
    const request = { username, password, database: limit };
    const origin = loginOrigin(exchange.peer, exchange.request);
    const { token, expiresIn } = await logIn(gateway.login, request, origin);
    exchange.verdict.allow();
    sendSuccess(exchange, 200, { token, expires_in: expiresIn });
  },
};

/** True unless the token is for another database. */
function isOpenTo({ tokenDatabase }: Subject, database: string): boolean {
  return [tokenDatabase, database].includes(EVERY_DATABASE) || database === tokenDatabase;
}

export const me = administrative((gateway, exchange) => {
  const caller = requireCaller(exchange);
  const { subject, tokenId, expiresAt } = caller;
  const { tokenDatabase } = subject;
  const { snapshot } = gateway.access;
  const user = caller.identify(snapshot);
  const entries = entriesIn(effectiveGrants(snapshot, subject));
  const access = Array.from(entries, viewEntry).filter(({ database }) =>
    isOpenTo(subject, database),
  );
  return {
    user: { username: user.username, email: user.email ?? null, disabled: user.disabled },
    token: {
      id: tokenId || undefined,
      name: gateway.inventory.index.get(tokenId)?.name,
      expires: expiresAt,
      database: tokenDatabase,
    },
    access,
  };
});

export const logout = administrative(async ({ revocations }, exchange) => {
  const { subject, tokenId, expiresAt } = requireCaller(exchange);
  await revocations.revoke({ jti: tokenId, until: expiresAt });
  exchange.verdict.noteChanges([
    { change: "token revoked", user: subject.username, token: tokenId },
  ]);
  return {};
});

/** @throws Refusal unless the actor is the user or an administrator, or `user_not_found` */
export async function revokeAllTokens(
  { access, revocations }: Gateway,
  actor: Subject,
  username: string,
): Promise<AuditedChange> {
  const { snapshot } = access;
  requireSelfOrAdministrator(snapshot, actor, username);
  // External users can have tokens without a record.
  const isKnown = snapshot.users.has(username) || isExternalUsername(username);
  if (!isKnown) throw new Refusal("user_not_found");
  await revocations.revokeUser(username, latestIssue(snapshot.users.get(username)));
  return { change: "tokens revoked", user: username };
}

export const revokeTokens = administrative(async (gateway, exchange) => {
  const username = usernameParameter(exchange);
  const change = await revokeAllTokens(gateway, requireActor(exchange), username);
  exchange.verdict.noteChanges([change]);
  return {};
});

/**
 * The accepted tokens that the actor may see: all for administrators, otherwise own ones. With a
 * token that is limited to a database, only own ones with the same limit.
 */
export async function visibleTokens(
  { access: { snapshot }, inventory, revocations, keys }: Gateway,
  actor: Subject,
): Promise<IssuedToken[]> {
  await inventory.reload();
  const { username, tokenDatabase } = actor;
  const isLimited = tokenDatabase !== EVERY_DATABASE;
  const seesAll = !isLimited && isAdministrator(snapshot, actor);
  const hasKey = (kid: string) => keys.ring.verifier(kid) !== undefined;
  const seen = [...inventory.index.all()].filter(
    (token) =>
      (seesAll || token.username === username) && (!isLimited || token.database === tokenDatabase),
  );
  return acceptedTokens(seen, { snapshot, revocations, hasKey });
}

export const listTokens: Endpoint = listing("tokens", async (gateway, exchange) => {
  const tokens = await visibleTokens(gateway, requireActor(exchange));
  const activity = await gateway.activity.read();
  const view = (one: IssuedToken) => viewToken(one, activity.useOfToken(one.tokenId));
  return { items: tokens.values().map(view) };
});

/** @throws Refusal `token_not_found` if the actor sees no such token */
export async function revokeIssued(
  gateway: Gateway,
  actor: Subject,
  tokenId: string,
): Promise<AuditedChange> {
  const found = (await visibleTokens(gateway, actor)).find((one) => one.tokenId === tokenId);
  if (found === undefined) throw new Refusal("token_not_found");
  await gateway.revocations.revoke({ jti: tokenId, until: found.expiresAt });
  return { change: "token revoked", user: found.username, token: tokenId };
}

export const revokeIssuedToken = administrative(async (gateway, exchange) => {
  const change = await revokeIssued(gateway, requireActor(exchange), tokenIdParameter(exchange));
  exchange.verdict.noteChanges([change]);
  return {};
});

/** `PUT /api/users/<u>/password`: also revokes all tokens issued with the old password. */
export const changePassword = administrative(
  async (gateway, exchange, body) => {
    const username = usernameParameter(exchange);
    const input = parseBody(body, bodies.setPassword);
    const { old_password: oldPassword, new_password: newPassword } = input;
    gateway.passwordRule(newPassword);
    const actor = requireActor(exchange);
    if (username === actor.username && oldPassword === undefined) {
      const message = "Invalid request body: old_password is missing";
      throw new Refusal("invalid_body", { message });
    }
    const { plan } = accountActions.password;
    plan(gateway.access.snapshot, actor, { username });
    let verified: string | undefined;
    if (oldPassword !== undefined) {
      const origin = loginOrigin(exchange.peer, exchange.request);
      const user = await checkPassword(gateway.login, username, oldPassword, origin);
      verified = passwordFingerprint(user);
    }
    const passwordHash = await newHash(gateway, exchange, newPassword);
    const planVerified = (current: Snapshot, subject: Subject) => {
      const changes = plan(current, subject, { username, passwordHash });
      // The verified password must still be the one on file. Its hash may have been upgraded to a
      // higher cost.
      const user = current.users.get(username);
      const isStale = verified !== undefined && (!user || passwordFingerprint(user) !== verified);
      if (isStale) throw new Refusal("credentials_invalid");
      return changes;
    };
    await changeAccess(gateway, exchange, planVerified);
    return {};
  },
  { hasBody: true },
);
