import { hash } from "node:crypto";
import { type Adapter, type AdapterPayload, errors } from "oidc-provider";
import { epochSeconds } from "../../clock.ts";
import { Refusal } from "../../refusal.ts";
import { lifetimes } from "./protocol.ts";
import type { StateStore } from "./state-store.ts";

/** Reports an unavailable store to the library, without a redirect to the client. */
export class StateUnavailable extends errors.TemporarilyUnavailable {
  constructor(refusal: Refusal) {
    super(refusal.message, { cause: refusal });
    this.status = refusal.status;
    this.statusCode = refusal.status;
    this.allow_redirect = false;
  }
}

async function told<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    throw error instanceof Refusal ? new StateUnavailable(error) : error;
  }
}

export function createAdapter(model: string, store: StateStore): Adapter {
  // Its id is itself a credential. Only a hash of it is stored.
  const isCredential = model === "AuthorizationCode" || model === "RefreshToken";
  const keyOf = (id: string) => (isCredential ? hash("sha256", id, "base64url") : id);
  /** Seconds after its first use in which a record is accepted again. */
  const reuse = model === "RefreshToken" ? lifetimes.refreshReuse : -1;

  return {
    async upsert(id, payload, expiresIn = lifetimes.forever) {
      // A session without a login has nothing to keep, and anyone can create them.
      if (model === "Session" && payload.accountId === undefined) return;
      const { jti, consumed: _, ...rest } = payload;
      const record = {
        payload: JSON.stringify(isCredential ? rest : { jti, ...rest }),
        grantId: payload.grantId,
        uid: payload.uid,
        expires: epochSeconds() + expiresIn,
      };
      await told(store.put(model, keyOf(id), record));
    },
    async find(id) {
      const found = await told(store.find(model, keyOf(id)));
      if (found === undefined) return undefined;
      // Payloads need no validation, because only this adapter writes them.
      const payload: AdapterPayload = JSON.parse(found.payload);
      if (isCredential) payload.jti = id;
      const { consumed } = found;
      // The absolute difference, so that setting the clock back extends nothing.
      const isUsable = consumed === undefined || Math.abs(epochSeconds() - consumed) <= reuse;
      return isUsable ? payload : { ...payload, consumed };
    },
    async findByUid(uid) {
      const found = await told(store.findByUid(model, uid));
      return found && JSON.parse(found.payload);
    },
    /** The device flow is not offered, so there are no user codes. */
    async findByUserCode() {
      return undefined;
    },
    /** @throws InvalidGrant if already used, so that only one of two simultaneous uses succeeds */
    async consume(id) {
      const isFirst = await told(store.consume(model, keyOf(id), reuse));
      if (!isFirst) throw new errors.InvalidGrant("already used");
    },
    destroy: (id) => told(store.remove(model, keyOf(id))),
    revokeByGrantId: (grantId) => told(store.removeByGrant(model, grantId)),
  };
}
