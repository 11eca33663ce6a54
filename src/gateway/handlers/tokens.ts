import { requireSelfOrAdministrator } from "../../access/administration-rights.ts";
import type { Subject } from "../../access/policy.ts";
import { isExternalUsername } from "../../access/records.ts";
import type { Snapshot } from "../../access/snapshot.ts";
import { Refusal } from "../../refusal.ts";
import { requireCaller } from "../administration.ts";
import { sendSuccess } from "../answer.ts";
import { type Endpoint, usernameParameter } from "../route.ts";

/** `POST /logout`: the token that was shown stops working. */
export const logout: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const { caller } = requireCaller(exchange);
    await gateway.revocations.revokeToken(caller.token);
    exchange.verdict.allow();
    sendSuccess(exchange, 200, {});
  },
};

function requireMayRevokeTokens(snapshot: Snapshot, actor: Subject, username: string): void {
  requireSelfOrAdministrator(snapshot, actor, username);
  // External users need no record to have tokens.
  const isKnown = snapshot.users.has(username) || isExternalUsername(username);
  if (!isKnown) throw new Refusal("user_not_found");
}

/** `DELETE /api/users/<u>/tokens`: every token that the user has by now stops working. */
export const revokeTokens: Endpoint = {
  authentication: "administration",
  async handle(gateway, exchange) {
    const username = usernameParameter(exchange);
    const { actor } = requireCaller(exchange);
    requireMayRevokeTokens(gateway.access.snapshot, actor, username);
    await gateway.revocations.revokeUser(username);
    exchange.verdict.allow();
    sendSuccess(exchange, 200, {});
  },
};
