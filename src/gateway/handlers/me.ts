import { EVERY_DATABASE } from "../../access/roles.ts";
import { accessList } from "../../access/snapshot.ts";
import { requireCaller } from "../administration.ts";
import { sendSuccess } from "../answer.ts";
import type { Endpoint } from "../route.ts";

/** `GET /api/me`: who the caller is, and what its token opens. */
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
