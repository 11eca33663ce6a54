import t from "tap";
import { preloads } from "../../src/workers/start.ts";

t.test("a worker loads what its main process was told to load, and nothing else", async (t) => {
  const loaded = ["--import", "./otel.mjs", "--import=./more.mjs", "-r", "dotenv", "--require=x"];
  t.strictSame(preloads(loaded), loaded);
  const mixed = ["--inspect=9229", "--import", "./otel.mjs", "--max-old-space-size=512"];
  t.strictSame(preloads(mixed), ["--import", "./otel.mjs"]);
  t.strictSame(preloads(["--importance", "--eval", "1"]), []);
});
