import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { FixtureServer } from "../mcp/fixture-server.ts";
import { handshakeCall, initialize } from "../mcp/messages.ts";
import { send } from "./mcp.ts";
import { staffedHome, tokenOf } from "./staff.ts";
import { servedBy } from "./supervised.ts";

const fixture = new FixtureServer();
const url = await fixture.listen();
t.teardown(() => fixture.close());
const grants = ["root * Owner", "alice main ReadWrite", "bob main ReadOnly"];
const revision = { "mcp-protocol-version": "2025-11-25" };

for (const count of [1, 2]) {
  const options = count === 1 ? nightly : {};
  t.test(
    `a session outlives the gateway, and is still its user's alone (${count})`,
    options,
    async (t) => {
      const home = await staffedHome(t, grants);
      const options = {
        ...{ home, upstream: "http://127.0.0.1:9" },
        ...servedBy(count, { config: `[mcp]\nupstream = "${url}"` }),
      };
      const first = await startGateway(t, options);
      const [alice, bob] = [await tokenOf(first, "alice"), await tokenOf(first, "bob")];
      async function begin(): Promise<Record<string, string>> {
        const { headers } = await send(first, initialize, alice);
        return { ...revision, "mcp-session-id": String(headers.get("mcp-session-id")) };
      }
      const sessions = [await begin(), await begin(), await begin()];
      const [over = {}, ...open] = sessions.map((session) =>
        handshakeCall("tools/list", {}, session),
      );
      t.equal((await send(first, { ...over, method: "DELETE" }, alice)).status, 200);
      // A worker tells the others of it without waiting for them.
      await eventually("the session is over in all processes", async () => {
        fixture.take();
        await send(first, over, alice);
        return fixture.take().length === 0;
      });
      await first.service.stop("SIGKILL");

      const second = await startGateway(t, options);
      fixture.take();
      t.equal((await send(second, over, alice)).status, 404);
      for (const list of open) t.equal((await send(second, list, bob)).status, 404);
      t.strictSame(fixture.take(), [], "the server is not asked");
      for (const list of open) t.equal((await send(second, list, alice)).status, 200);
      t.equal(await second.service.stop(), 0);
    },
  );
}
