import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { mock } from "node:test";

type Open = typeof promises.open;

/** Opens of files fail for lack of descriptors until the result is called. */
export function lackDescriptors(isLacking: (...args: Parameters<Open>) => boolean): () => void {
  const { open: original } = promises;
  const open = mock.method(promises, "open", async (...args: Parameters<Open>) => {
    if (!isLacking(...args)) return original(...args);
    throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
  });
  syncBuiltinESMExports();
  return () => {
    open.mock.restore();
    syncBuiltinESMExports();
  };
}
