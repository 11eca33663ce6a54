import * as z from "zod";
import { planSetPassword, requireSelfOrAdministrator } from "../../access/administration.ts";
import { isExternalUsername } from "../../access/identifiers.ts";
import { EVERY_DATABASE } from "../../access/roles.ts";
import { accessList, type Snapshot } from "../../access/snapshot.ts";
import type { Subject } from "../../access/subject.ts";
import { credentialOf } from "../../identity/authenticate.ts";
import { checkPassword, hashClientOf, logIn } from "../../identity/login.ts";
import { hashPassword } from "../../identity/password.ts";
import { isPlainName } from "../../query/names.ts";
import { Refusal } from "../../refusal.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import { type Exchange, nobody } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { usernameParameter } from "../parameters.ts";
import { loginOrigin } from "../peer.ts";
import type { Endpoint } from "../route.ts";

const credentials = z.strictObject({
  username: z.string(),
  password: z.string(),
  database: z.string().optional(),
});

/** The username for the audit. Text that is not the name of a user may be a mistyped password. */
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

export const login: Endpoint = {
  authentication: "public",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const { username, password, database } = parseBody(body, credentials);
    // `*` means the same as no database.
    const limit = database === EVERY_DATABASE ? undefined : database;
    if (limit !== undefined && !isPlainName(limit)) throw new Refusal("invalid_database");
    auditAttempt(gateway, exchange, username);
    const request = { username, password, database: limit };
    const origin = loginOrigin(exchange.peer, exchange.request);
    const { token, expiresIn } = await logIn(gateway.login, request, origin);
    exchange.verdict.allow();
    sendSuccess(exchange, 200, { token, expires_in: expiresIn });
  },
};

export const me: Endpoint = {
  authentication: "administration",
  handle(gateway, exchange) {
    const { caller } = requireCaller(exchange);
    const { user, token } = caller;
    const access = accessList(gateway.access.snapshot, user.username).filter(
      ({ database }) =>
        token.database === EVERY_DATABASE ||
        database === token.database ||
        database === EVERY_DATABASE,
    );
    exchange.verdict.allow();
    sendSuccess(exchange, 200, {
      user: { username: user.username, email: user.email ?? null, disabled: user.disabled },
      token: { expires: token.expiresAt, database: token.database },
      access,
    });
  },
};

export const logout: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const { caller } = requireCaller(exchange);
    await gateway.revocations.revokeToken(caller.token);
    exchange.verdict.allow();
    const { username: user, tokenId: token } = caller.token;
    exchange.verdict.changes = [{ change: "token revoked", user, token }];
    sendSuccess(exchange, 200, {});
  },
};

function requireMayRevokeTokens(snapshot: Snapshot, actor: Subject, username: string): void {
  requireSelfOrAdministrator(snapshot, actor, username);
  // External users can have tokens without a record.
  const isKnown = snapshot.users.has(username) || isExternalUsername(username);
  if (!isKnown) throw new Refusal("user_not_found");
}

/** `DELETE /api/users/<u>/tokens`: revokes all tokens that the user has now. */
export const revokeTokens: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const username = usernameParameter(exchange);
    const { actor } = requireCaller(exchange);
    requireMayRevokeTokens(gateway.access.snapshot, actor, username);
    await gateway.revocations.revokeUser(username);
    exchange.verdict.allow();
    exchange.verdict.changes = [{ change: "tokens revoked", user: username }];
    sendSuccess(exchange, 200, {});
  },
};

const passwords = z.strictObject({
  old_password: z.string().optional(),
  new_password: z.string(),
});

function requireMayChange(snapshot: Snapshot, actor: Subject, username: string): void {
  requireSelfOrAdministrator(snapshot, actor, username);
  planSetPassword(snapshot, username, "");
}

/** `PUT /api/users/<u>/password`: also revokes all tokens issued with the old password. */
export const changePassword: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  async handle(gateway, exchange, body) {
    const username = usernameParameter(exchange);
    const { old_password: oldPassword, new_password: newPassword } = parseBody(body, passwords);
    gateway.passwordRule(newPassword);
    const { actor } = requireCaller(exchange);
    const isOwn = username === actor.username;
    if (isOwn && oldPassword === undefined) {
      throw new Refusal("invalid_body", {
        message: "Invalid request body: old_password is missing",
      });
    }
    requireMayChange(gateway.access.snapshot, actor, username);

    const origin = loginOrigin(exchange.peer, exchange.request);
    let verified: string | undefined;
    if (oldPassword !== undefined) {
      const user = await checkPassword(gateway.login, username, oldPassword, origin);
      verified = credentialOf(user);
    }
    const { hashing, costs } = gateway.login;
    const passwordHash = await hashing.run(
      [costs],
      hashClientOf(origin, exchange.authenticated.username),
      (derive) => hashPassword(newPassword, costs, { derive }),
    );
    const plan = (current: Snapshot, subject: Subject) => {
      requireMayChange(current, subject, username);
      // The verified password must still be the one on file. Its hash may have been upgraded to a
      // higher cost.
      const user = current.users.get(username);
      const isStale = verified !== undefined && (!user || credentialOf(user) !== verified);
      if (isStale) throw new Refusal("credentials_invalid");
      return planSetPassword(current, username, passwordHash);
    };
    await changeAccess(gateway, exchange, plan, username);
    sendSuccess(exchange, 200, {});
  },
};
