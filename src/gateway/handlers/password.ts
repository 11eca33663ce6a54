import * as z from "zod";
import { planSetPassword } from "../../access/administration.ts";
import { requireSelfOrAdministrator } from "../../access/administration-rights.ts";
import type { Subject } from "../../access/policy.ts";
import type { Snapshot } from "../../access/snapshot.ts";
import { credentialOf } from "../../identity/credential.ts";
import { checkPassword, hashClientOf } from "../../identity/login.ts";
import { hashPassword } from "../../identity/password.ts";
import { Refusal } from "../../refusal.ts";
import { changeAccess, requireCaller } from "../administration.ts";
import { sendSuccess } from "../answer.ts";
import { parseBody, SMALL_BODY_BYTES } from "../body.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { loginOrigin } from "../peer.ts";
import { type Endpoint, usernameParameter } from "../route.ts";

const shape = z.strictObject({
  old_password: z.string().optional(),
  new_password: z.string(),
});

/** A user may change its own password, an administrator anybody's. */
function requireMayChange(snapshot: Snapshot, actor: Subject, username: string): void {
  requireSelfOrAdministrator(snapshot, actor, username);
  if (!snapshot.users.has(username)) throw new Refusal("user_not_found");
}

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const username = usernameParameter(exchange);
  const { old_password: oldPassword, new_password: newPassword } = parseBody(body, shape);
  gateway.passwordRule(newPassword);
  const { actor } = requireCaller(exchange);
  const isOwn = username === actor.username;
  if (isOwn && oldPassword === undefined) {
    throw new Refusal("invalid_body", { message: "Invalid request body: old_password is missing" });
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
    // The password that was verified must still be the one on file; its hash may have been raised.
    const user = current.users.get(username);
    const isStale = verified !== undefined && (!user || credentialOf(user) !== verified);
    if (isStale) throw new Refusal("credentials_invalid");
    return planSetPassword(current, username, passwordHash);
  };
  await changeAccess(gateway, exchange, plan, username);
  sendSuccess(exchange, 200, {});
}

/** `PUT /api/users/<u>/password`: every token of the old password stops working. */
export const changePassword: Endpoint = {
  authentication: "administration",
  bodyLimit: SMALL_BODY_BYTES,
  handle,
};
