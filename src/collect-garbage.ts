import { Session } from "node:inspector/promises";

/** Has V8 collect all that nobody uses, and give the memory back; holds the event loop meanwhile. */
export async function collectGarbage(): Promise<void> {
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.collectGarbage");
  session.disconnect();
}
