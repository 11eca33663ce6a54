import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import path from "node:path";
import t, { type Test } from "tap";
import { createDocumentFetch, isPublicAddress } from "../../src/oauth/server/client-documents.ts";
import { temporaryDirectory } from "../access/kit.ts";
import { PlainBrowser } from "./browser.ts";
import { obtainTokens } from "./flow.ts";
import { authorizeUrl, documentsOf, openSetting, REDIRECT } from "./kit.ts";

const CLIENT = "https://app.example.com/client.json";

t.test("a client is known by the document at its name", async (t) => {
  const document = { client_id: CLIENT, client_name: "Hosted", redirect_uris: [REDIRECT] };
  const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
  const page = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id: CLIENT }),
  );
  t.match(page.text, "Hosted");
  t.match(page.text, "<dd>app.example.com</dd>");
  const { accessToken } = await obtainTokens(setting, { clientId: CLIENT });
  t.match(await setting.server.verify(accessToken), { clientId: CLIENT });
});

t.test("a document that is not the client's own, or bad, makes no client", async (t) => {
  const base = { client_id: CLIENT, redirect_uris: [REDIRECT] };
  for (const document of [
    { ...base, client_id: "https://other.example.com/client.json" },
    { redirect_uris: [REDIRECT] },
    { ...base, redirect_uris: ["http://app.example.com/"] },
    { ...base, token_endpoint_auth_method: "client_secret_basic" },
    undefined,
  ]) {
    const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, JSON.stringify(document));
  }
});

t.test("only addresses of the public internet are public", async (t) => {
  for (const address of ["93.184.215.14", "2606:4700:4700::1111"]) t.ok(isPublicAddress(address));
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "ff02::1",
    "64:ff9b:1::1",
    "4000::1",
    "nonsense",
  ]) {
    t.notOk(isPublicAddress(address), address);
  }
});

/** An https server on this machine whose connections are counted. */
async function openSecret(t: Test): Promise<{ port: number; reached: () => number }> {
  const directory = temporaryDirectory(t);
  const [key, cert] = [path.join(directory, "key.pem"), path.join(directory, "cert.pem")];
  const subject = ["-subj", "/CN=app.example.com", "-days", "1", "-nodes"];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
  const files = ["-keyout", key, "-out", cert];
  execFileSync("openssl", ["req", "-x509", ...curve, ...subject, ...files], { stdio: "ignore" });
  let connections = 0;
  const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_, response) =>
    response.end("secret"),
  );
  server.on("connection", () => connections++);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => new Promise((resolve) => server.close(resolve)));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return { port: address.port, reached: () => connections };
}

t.test("no document is fetched from this machine, under whatever name", async (t) => {
  const { port, reached } = await openSecret(t);
  const signal = AbortSignal.timeout(10_000);
  const inside = createDocumentFetch((_, done) =>
    done(null, [{ address: "127.0.0.1", family: 4 }]),
  );
  await t.rejects(inside(`https://app.example.com:${port}/`, signal), /not public/);
  const mixed = createDocumentFetch((_, done) =>
    done(null, [
      { address: "93.184.215.14", family: 4 },
      { address: "127.0.0.1", family: 4 },
    ]),
  );
  await t.rejects(mixed(`https://app.example.com:${port}/`, signal), /not public/);
  const fetchDocument = createDocumentFetch();
  for (const host of ["127.0.0.1", "[::1]", "localhost", "2130706433", "0x7f.1"]) {
    await t.rejects(fetchDocument(`https://${host}:${port}/`, signal), /not public/, host);
  }
  await t.rejects(fetchDocument(`http://app.example.com:${port}/`, signal), /https/);
  t.equal(reached(), 0);
});
