import { Session } from "node:inspector/promises";

/**
 * Runs a full garbage collection and returns free memory to the system. Blocks the event loop while
 * it runs.
 */
export async function collectGarbage(): Promise<void> {
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.collectGarbage");
  session.disconnect();
}
