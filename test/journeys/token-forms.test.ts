import { randomBytes } from "node:crypto";
import { CompactEncrypt, generateKeyPair } from "jose";
import t from "tap";
import { encodePart, sign, signText } from "../identity/forge.ts";
import { checkRefused, checkTaken, forge, openForgery } from "./forgery.ts";

/** The order of the group of P-256 (FIPS 186-4, appendix D.1.2.3). */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

function bytesOf(value: bigint, length = 32): Buffer {
  return Buffer.from(value.toString(16).padStart(length * 2, "0"), "hex");
}

function numberOf(bytes: Buffer): bigint {
  return BigInt(`0x${bytes.toString("hex")}`);
}

/** An unsigned integer in DER (X.690, section 8.3). */
function derInteger(value: bigint): Buffer {
  const plain = bytesOf(value);
  const bytes = (plain[0] ?? 0) > 127 ? Buffer.concat([Buffer.of(0), plain]) : plain;
  return Buffer.concat([Buffer.of(2, bytes.length), bytes]);
}

function derSignature(r: bigint, s: bigint): Buffer {
  const content = Buffer.concat([derInteger(r), derInteger(s)]);
  return Buffer.concat([Buffer.of(0x30, content.length), content]);
}

t.test("a signature of special numbers, or spelt otherwise, is none", async (t) => {
  const forgery = await openForgery(t);
  const { good } = forgery;
  const [head = "", payload = "", encoded = ""] = good.split(".");
  const signature = Buffer.from(encoded, "base64url");
  const [r, s] = [numberOf(signature.subarray(0, 32)), numberOf(signature.subarray(32))];
  const show = (bytes: Buffer) => `${head}.${payload}.${bytes.toString("base64url")}`;

  const special = [0n, 1n, ORDER - 1n, ORDER, ORDER + 1n, 2n ** 256n - 1n];
  for (const first of [r, ...special]) {
    for (const second of [s, ...special]) {
      if (first === r && second === s) continue;
      const bent = Buffer.concat([bytesOf(first), bytesOf(second)]);
      await checkRefused(t, forgery, show(bent), `r ${first}, s ${second}`);
    }
  }
  const forms: [name: string, signature: Buffer][] = [
    ["DER", derSignature(r, s)],
    ["DER of zeros", derSignature(0n, 0n)],
    ["empty", Buffer.alloc(0)],
    ["half", signature.subarray(0, 32)],
    ["a byte less", signature.subarray(0, 63)],
    ["a byte more", Buffer.concat([signature, Buffer.of(0)])],
    ["a byte before", Buffer.concat([Buffer.of(0), signature])],
    ["wider numbers", Buffer.concat([bytesOf(r, 48), bytesOf(s, 48)])],
    ["swapped", Buffer.concat([signature.subarray(32), signature.subarray(0, 32)])],
    ["random", randomBytes(64)],
    ["twice", Buffer.concat([signature, signature])],
  ];
  for (const [name, bytes] of forms) await checkRefused(t, forgery, show(bytes), name);

  const mirrored = show(Buffer.concat([bytesOf(r), bytesOf(ORDER - s)]));
  await checkTaken(t, forgery, mirrored, "every signature of ECDSA has a twin");
  await forgery.gateway.send("POST", "/logout", undefined, good);
  await checkRefused(t, forgery, good, "the token was revoked", "token_revoked");
  await checkRefused(t, forgery, mirrored, "and its twin with it", "token_revoked");
});

/** The spellings of a part that a lenient decoder reads as the same bytes. */
function lenientSpellings(part: string): string[] {
  const last = ALPHABET.indexOf(part.at(-1) ?? "");
  const free = { 2: 4, 3: 2 }[part.length % 4] ?? 0;
  const tails = Array.from({ length: 2 ** free }, (_, low) => ((last >> free) << free) | low);
  const others = tails.filter((tail) => tail !== last).map((tail) => ALPHABET.charAt(tail));
  return [
    ...others.map((tail) => part.slice(0, -1) + tail),
    ...["=", "==", "~", "+", "/"].map((more) => part + more),
    part.replaceAll("-", "+").replaceAll("_", "/"),
    `${part.slice(0, 4)}~${part.slice(4)}`,
  ].filter((spelling) => spelling !== part);
}

t.test("a part that is not spelt as base64url spells it is refused", async (t) => {
  const forgery = await openForgery(t);
  const { good, key, header, claims } = forgery;
  const [head = "", payload = "", signature = ""] = good.split(".");
  for (const spelling of lenientSpellings(signature)) {
    await checkRefused(t, forgery, `${head}.${payload}.${spelling}`, `signature ${spelling}`);
  }
  // Lengths that leave none, two and four bits over.
  for (const padding of ["", "x", "xx"]) {
    const body = encodePart({ ...claims, padding: `${padding}???>>>` });
    await checkTaken(t, forgery, await signText(key, `${head}.${body}`), "as it should be");
    for (const spelling of lenientSpellings(body)) {
      const token = await signText(key, `${head}.${spelling}`);
      await checkRefused(t, forgery, token, `payload ${spelling.slice(-8)}`);
    }
    const top = encodePart({ ...header, padding: `${padding}???>>>` });
    for (const spelling of lenientSpellings(top)) {
      const token = await signText(key, `${spelling}.${payload}`);
      await checkRefused(t, forgery, token, `header ${spelling.slice(-8)}`);
    }
  }
});

t.test("a payload that two readers could read apart is refused under the right key", async (t) => {
  const forgery = await openForgery(t);
  const { claims, header } = forgery;
  const text = JSON.stringify(claims);
  const open = text.slice(0, -1);
  const texts: [name: string, payload: string | Buffer][] = [
    ["sub twice", `${open},"sub":"somebody"}`],
    ["sub twice, the same", `${open},"sub":"admin"}`],
    ["sub twice, one escaped", `${open},"s\\u0075b":"admin"}`],
    ["exp twice", `{"exp":1,${text.slice(1)}`],
    ["role twice", `${open},"role":"Owner"}`],
    ["a member of __proto__ twice", `${open},"__proto__":{"sub":"x"},"__proto__":1}`],
    ["exp as a float of the same value", text.replace(/("exp":\d+)/, "$1.0")],
    ["exp with an exponent", text.replace(/"exp":\d+/, '"exp":9e9')],
    ["exp beyond all numbers", text.replace(/"exp":\d+/, '"exp":1e999')],
    ["a space", ` ${text}`],
    ["a line's end", `${text}\n`],
    ["a byte-order mark", `\ufeff${text}`],
    ["something after it", `${text}{}`],
    ["a NUL after it", `${text}\0`],
    ["a comment", `${open}/**/}`],
    ["a comma too many", `${open},}`],
    ["bytes that are no UTF-8", Buffer.from(`${open},"x":"\xff"}`, "latin1")],
    ["an overlong slash", Buffer.from(`${open},"x":"\xc0\xaf"}`, "latin1")],
    ["UTF-16", Buffer.from(text, "utf16le")],
    ["a list", `[${text}]`],
    ["a string", JSON.stringify(text)],
    ["null", "null"],
    ["nothing", ""],
    ["an empty object", "{}"],
  ];
  for (const [name, payload] of texts) {
    await checkRefused(t, forgery, await forge(forgery, header, payload), name);
  }
  const more = `${open},"x":{"sub":"somebody","exp":[1]},"__proto__":{"sub":"x"}}`;
  await checkTaken(t, forgery, await forge(forgery, header, more), "other claims are passed over");
});

t.test("what is no compact JWS of sensible size is refused", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header, good } = forgery;
  const [head = "", payload = "", signature = ""] = good.split(".");
  for (const length of [4096, 6000]) {
    const large = await sign(key, header, { ...claims, padding: "x".repeat(length) });
    await checkRefused(t, forgery, large, `${large.length} characters`);
  }
  const pieces = [
    ...[".", "..", "...", "a.b.c", head, `${head}.${payload}`, `${head}.${payload}.`],
    ...[`.${payload}.${signature}`, `${head}..${signature}`, `${good}.`, `.${good}`, `${good}.x`],
    ...[`${good}${good}`, `${good}.${good}`, good.replace(".", ".."), good.replaceAll(".", "~")],
    ...[good.replaceAll(".", "/"), good.toLowerCase(), good.split(".").reverse().join(".")],
  ];
  for (const text of pieces) await checkRefused(t, forgery, text, text.slice(0, 20));

  const { publicKey } = await generateKeyPair("ECDH-ES", { crv: "P-256" });
  const encrypted = await new CompactEncrypt(Buffer.from(good))
    .setProtectedHeader({ alg: "ECDH-ES", enc: "A256GCM", kid: key.kid })
    .encrypt(publicKey);
  await checkRefused(t, forgery, encrypted, "JWE");
  const direct = { alg: "dir", enc: "A256GCM", kid: key.kid, typ: "JWT" };
  await checkRefused(t, forgery, `${encodePart(direct)}..AAAA.AAAA.AAAA`, "JWE with no key");
  await checkRefused(t, forgery, await forge(forgery, { ...header, cty: "JWT" }, good), "nested");
  const changed = encodePart({ ...claims, sub: "somebody" });
  await checkRefused(t, forgery, `${head}.${changed}.${signature}`, "changed claims");
  await checkTaken(t, forgery, good, "and the good one is good still");
});
