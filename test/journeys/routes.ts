import type { Test } from "tap";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

export const routes = tables("routes", [
  { path: "/status", access: "public" },
  { path: "/me", access: "authenticated" },
  { path: "/backup", methods: ["POST"], access: "administrator" },
  { path: "/db/:database/stats", methods: ["GET", "POST"], access: "SELECT" },
  { path: "/auth/:database", access: "authenticated" },
  { path: "/admin/:database", access: "administrator" },
  { path: "/db/:database/rows/:row", methods: ["PUT", "DELETE"], access: "DELETE" },
  { path: "/export", access: "INSERT", database_header: "X-Database" },
]);

export interface Scene {
  upstream: RecordingUpstream;
  gateway: TestGateway;
  admin: string;
}

export async function scene(t: Test, config = ""): Promise<Scene> {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const gateway = await startGateway(t, { upstream: upstream.url, config: `${config}${routes}` });
  return { upstream, gateway, admin: await gateway.login() };
}
