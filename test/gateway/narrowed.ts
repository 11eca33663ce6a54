/** A gateway with a caller whose entries say more than a role. */
import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway, type TestGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

/** Edits the access file, and waits until each process of the gateway decides by it. */
export async function editInForce(
  gateway: TestGateway,
  change: (text: string) => string,
): Promise<void> {
  const version = async () => {
    const answer = await gateway.request("/readyz", { headers: { connection: "close" } });
    return answer.body.access_version;
  };
  const before = await version();
  await gateway.edit(change);
  await eventually("the edit is in force", async () => {
    const versions = await Promise.all(Array.from({ length: 16 }, version));
    return !versions.includes(before);
  });
}

/** Rita's entries, as an operator writes them in the place of the one she has. */
export async function narrowed(t: Test, entries: string, upstreamUrl?: string, config = "") {
  const gateway = await startGateway(t, {
    config,
    ...(upstreamUrl === undefined ? {} : { upstream: upstreamUrl }),
  });
  const token = await gateway.addUser("rita", "ReadWrite");
  await editInForce(gateway, (text) =>
    text
      .replace(/\[\[acl\]\]\nusername = "rita"\n[^[]*/, entries)
      .replace(
        /username = "rita"\n/,
        'username = "rita"\nattributes = { tenant = "acme", regions = ["eu", "us"] }\n',
      ),
  );
  return { gateway, token, ask: (query: object | string) => gateway.query(query, token) };
}

export const entry = (more: string, role = "ReadWrite") =>
  `[[acl]]\nusername = "rita"\ndatabase = "main"\nrole = "${role}"\n${more}\n`;
export const tenant = 'row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]';
export const select = (more: object) => ({
  Select: { database: "main", from: "tickets", columns: ["id"], ...more },
});

export async function recorded(t: Test) {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  return upstream;
}

/** The bodies that reached the upstream, health checks aside. */
export function bodies(upstream: RecordingUpstream): string[] {
  return upstream
    .take()
    .filter(({ method }) => method === "POST")
    .map(({ body }) => body.toString());
}
