import t from "tap";
import { Wire, wireRequest } from "../kit/wire.ts";
import { authorize } from "./flow.ts";
import { openSetting } from "./kit.ts";

const form = { "Content-Type": "application/x-www-form-urlencoded" };
const json = { "Content-Type": "application/json" };
const chunked = { "Transfer-Encoding": "chunked" };

t.test("a body of unknown length is refused once it is too large", async (t) => {
  const { url } = await openSetting(t);
  const sizes = { endless: 20, ended: 17 };
  for (const [path, type] of Object.entries({ token: form, revoke: form, register: json })) {
    for (const [kind, kibibytes] of Object.entries(sizes)) {
      const wire = await Wire.open(url);
      wire.send(wireRequest(`POST /oauth/${path}`, { ...type, ...chunked }));
      wire.send(`400\r\n${"x".repeat(1024)}\r\n`.repeat(kibibytes));
      if (kind === "ended") wire.send("0\r\n\r\n");
      const answer = await wire.until(/^HTTP\/1\.1 \d[\s\S]*\}/);
      t.match(answer, /^HTTP\/1\.1 413 /, `${path}, ${kind}`);
      t.match(
        answer,
        /"error":"invalid_request","error_description":"the body has more than 16384 bytes"/,
      );
      wire.cut();
    }
  }
});

t.test("a code is exchanged also by a form of unknown length", async (t) => {
  const setting = await openSetting(t);
  const { clientId, verifier, callback, redirectUri } = await authorize(setting);
  const fields = new URLSearchParams({
    grant_type: "authorization_code",
    client_id: clientId,
    code: callback.searchParams.get("code") ?? "",
    code_verifier: verifier,
    redirect_uri: redirectUri,
  }).toString();
  const wire = await Wire.open(setting.url);
  wire.send(wireRequest("POST /oauth/token", { ...form, ...chunked }));
  for (const character of fields) wire.send(`1\r\n${character}\r\n`);
  wire.send("0\r\n\r\n");
  t.match(await wire.until(/\r\n\r\n[\s\S]*\}/), /^HTTP\/1\.1 200 [\s\S]*"access_token"/);
  wire.cut();
});
