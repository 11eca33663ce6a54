import { openStateIn, stateDirectoryOf } from "../oauth/server/state-file.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import type { Gateway } from "./gateway.ts";

/** Opens the state of the authorization server, in files unless replicas share it. */
export async function openState(
  { authorization }: Partial<Pick<Gateway, "authorization">>,
  serviceDirectory: string,
  opened: AsyncDisposableStack,
): Promise<AuthorizationState> {
  if (authorization !== undefined) return authorization;
  const state = await openStateIn(stateDirectoryOf(serviceDirectory));
  opened.defer(() => state.store.close());
  return state;
}
