import type { TestGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { KeptConnection } from "./kept-connection.ts";

/** A drain closes a connection that was silent for so long, in milliseconds. */
const SILENCE_MS = 1000;

/** Asks one query after the other until no new connection is taken; what went wrong before that. */
export async function askUntilRefused(
  gateway: TestGateway,
  token: string,
  think: () => Promise<void> = async () => {},
): Promise<unknown[]> {
  const kept = new KeptConnection(gateway.url);
  const wrong: unknown[] = [];
  for (let sentAt = performance.now(); ; ) {
    const before = sentAt;
    sentAt = performance.now();
    try {
      const { status } = await kept.send("POST", "/query", token, select);
      if (status !== 200) wrong.push(status);
      await think();
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ECONNREFUSED") break;
      // On a busy machine the client itself may have been silent for too long.
      if (performance.now() - before < SILENCE_MS) wrong.push(error);
    }
  }
  kept.close();
  return wrong;
}
