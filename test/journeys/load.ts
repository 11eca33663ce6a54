import type { TestGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { KeptConnection } from "./kept-connection.ts";

/** Asks one query after the other until no new connection is taken; what went wrong before that. */
export async function askUntilRefused(
  gateway: TestGateway,
  token: string,
  think: () => Promise<void> = async () => {},
): Promise<unknown[]> {
  const kept = new KeptConnection(gateway.url);
  const wrong: unknown[] = [];
  try {
    for (;;) {
      const { status } = await kept.send("POST", "/query", token, select);
      if (status !== 200) wrong.push(status);
      await think();
    }
  } catch (error) {
    const isRefused = error instanceof Error && "code" in error && error.code === "ECONNREFUSED";
    if (!isRefused) wrong.push(error);
  } finally {
    kept.close();
  }
  return wrong;
}
