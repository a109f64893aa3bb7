// Drives the server as a stock Node.js gRPC client does: channel options are the defaults unless a check is about
// one. Prints one line per check and exits with 1 at the first that fails.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { setTimeout: pause } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const UID = '5a1e0d3c-0000-4000-8000-00000000d002';
const ABSENT = '00000000-0000-4000-8000-000000000000';
// For what must come soon; nothing here takes a tenth of it.
const PATIENCE_MS = 20_000;

// One static pod with a fixed UID, so that an edit is the same pod, changed.
class Manifest {
  constructor(directory) {
    this.path = path.join(directory, 'node-client.json');
  }

  write(version) {
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'node-client', namespace: 'clients', uid: UID, labels: { version } },
      spec: { containers: [{ name: 'main', image: 'registry.example/main:1' }] },
    };
    // Editors and tools replace files; a name with a dot in front is no manifest.
    const temporary = path.join(path.dirname(this.path), '.node-client.new');
    fs.writeFileSync(temporary, JSON.stringify(pod));
    fs.renameSync(temporary, this.path);
  }

  remove() {
    fs.rmSync(this.path, { force: true });
  }
}

// A unary call as a promise.
function call(client, method, request, metadata = new grpc.Metadata()) {
  return new Promise((resolve, reject) => {
    client[method](request, metadata, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

// The messages of a stream, one at a time; its end rejects with the status.
class Messages {
  constructor(stream) {
    this.stream = stream;
    this.iterator = stream[Symbol.asyncIterator]();
  }

  async next() {
    const { value, done } = await this.iterator.next();
    assert.ok(!done, 'the stream ended');
    return value;
  }

  async take(count) {
    const messages = [];
    while (messages.length < count) messages.push(await this.next());
    return messages;
  }

  // The status that the stream ends with.
  async end() {
    try {
      for (;;) await this.next();
    } catch (error) {
      return error.code;
    }
  }
}

function deadline(milliseconds = PATIENCE_MS) {
  return { deadline: Date.now() + milliseconds };
}

async function checkListAndGet(pods, decode, expected) {
  const { pods: listed } = await call(pods, 'ListPods', {});
  const uids = listed.map((bytes) => decode(bytes).metadata.uid);
  assert.equal(listed.length, expected, 'number of pods');
  assert.deepEqual(uids, [...new Set(uids)].sort(), 'each pod once, in UID order');
  for (const [index, podUID] of uids.entries()) {
    const { pod } = await call(pods, 'GetPod', { podUID });
    assert.ok(pod.equals(listed[index]), `GetPod of ${podUID} differs from ListPods`);
    // Stays below the rate limit of a caller: 100/s after a burst of 10.
    await pause(20);
  }
  await assert.rejects(call(pods, 'GetPod', { podUID: ABSENT }), {
    code: grpc.status.NOT_FOUND,
    details: `pod with UID ${ABSENT} not found`,
  });
  return listed;
}

async function checkFieldMask(pods, decode, listed) {
  const metadata = new grpc.Metadata();
  metadata.set('x-kubernetes-fieldmask', 'metadata.name,spec.nodeName');
  const { pods: cut } = await call(pods, 'ListPods', {}, metadata);
  const expected = listed.map((bytes) => {
    const { metadata: { name }, spec: { nodeName } } = decode(bytes);
    return { name, nodeName };
  });
  assert.deepEqual(cut.map((bytes) => ({ ...decode(bytes).metadata, ...decode(bytes).spec })), expected);
  metadata.set('x-kubernetes-fieldmask', 'status.podIps');
  await assert.rejects(call(pods, 'ListPods', {}, metadata), { code: grpc.status.INVALID_ARGUMENT });
}

async function checkWatch(pods, decode, manifest, listed) {
  const events = new Messages(pods.WatchPods({}, deadline()));
  for (const [index, event] of (await events.take(listed.length)).entries()) {
    assert.equal(event.type, 'ADDED', 'before the marker');
    assert.ok(event.pod.equals(listed[index]), 'the initial pods differ from ListPods');
  }
  const marker = await events.next();
  assert.equal(marker.type, 'INITIAL_SYNC_COMPLETE');
  assert.ok(!marker.pod?.length, 'the marker carries a pod');

  let name;
  for (const [version, type] of [['1', 'ADDED'], ['2', 'MODIFIED']]) {
    manifest.write(version);
    const event = await events.next();
    const { metadata } = decode(event.pod);
    name = metadata.name;
    assert.equal(event.type, type);
    assert.deepEqual([metadata.uid, metadata.labels.version], [UID, version]);
  }
  manifest.remove();
  const event = await events.next();
  assert.equal(event.type, 'DELETED');
  assert.deepEqual(decode(event.pod), { metadata: { name, namespace: 'clients', uid: UID } });
  events.stream.cancel();
  assert.equal(await events.end(), grpc.status.CANCELLED);
}

async function checkDocumented(pods, decode, manifest, listed) {
  const known = listed.map(decode);
  const { pods: all } = await call(pods, 'ListPods', {});
  assert.deepEqual(all, known, 'the two contracts list different pods');
  const { pod: one } = await call(pods, 'GetPod', { podUID: known[0].metadata.uid });
  assert.deepEqual(one, known[0], 'the two contracts differ in GetPod');

  const events = new Messages(pods.WatchPods({}, deadline()));
  assert.deepEqual((await events.take(known.length)).map(({ pod }) => pod), known, 'the initial pods');
  let state;
  for (const version of ['1', '2']) {
    manifest.write(version);
    state = (await events.next()).pod;
    assert.deepEqual([state.metadata.uid, state.metadata.labels.version], [UID, version]);
  }
  manifest.remove();
  const { pod: last } = await events.next();
  assert.deepEqual([last.metadata.uid, last.spec], [UID, state.spec], 'the last state');
  assert.ok(last.metadata.deletionTimestamp, 'a deleted pod has no deletionTimestamp');
  assert.equal(last.metadata.annotations['pods-api/deleted'], 'true');
  events.stream.cancel();
  assert.equal(await events.end(), grpc.status.CANCELLED);
}

async function checkDeadlineAndCancellation(pods, listed) {
  const start = Date.now();
  assert.equal(await new Messages(pods.WatchPods({}, deadline(1_000))).end(), grpc.status.DEADLINE_EXCEEDED);
  assert.ok(Date.now() - start >= 900, 'the watch ended before its deadline');

  const events = new Messages(pods.WatchPods({}));
  await events.next();
  events.stream.cancel();
  assert.equal(await events.end(), grpc.status.CANCELLED);
  assert.equal((await call(pods, 'ListPods', {})).pods.length, listed.length, 'after a cancellation');
}

async function checkKeepalive(Pods, target) {
  // Without any call open, and far more eager than clients are by default: still no flood.
  const pods = new Pods(target, grpc.credentials.createInsecure(), {
    'grpc.keepalive_time_ms': 1_000,
    'grpc.keepalive_permit_without_calls': 1,
    // A connection of its own.
    'grpc.use_local_subchannel_pool': 1,
  });
  await call(pods, 'ListPods', {});
  const channel = pods.getChannel();
  let left = false;
  channel.watchConnectivityState(grpc.connectivityState.READY, Date.now() + 5_000, (timeout) => {
    left = timeout === undefined;
  });
  await pause(5_100);
  assert.ok(!left, 'pings cost the connection');
  await call(pods, 'ListPods', {});
  pods.close();
}

async function checkLarge(Pods, target, decode) {
  const standard = new Pods(target, grpc.credentials.createInsecure());
  await assert.rejects(call(standard, 'ListPods', {}), { code: grpc.status.RESOURCE_EXHAUSTED });
  // One of the documented remedies: a watch sends one pod at a time.
  const events = new Messages(standard.WatchPods({}, deadline()));
  let watched = 0;
  while ((await events.next()).type !== 'INITIAL_SYNC_COMPLETE') watched += 1;
  events.stream.cancel();
  assert.equal(await events.end(), grpc.status.CANCELLED);
  standard.close();

  const raised = new Pods(target, grpc.credentials.createInsecure(), {
    'grpc.max_receive_message_length': 64 << 20,
  });
  const { pods } = await call(raised, 'ListPods', {});
  raised.close();
  const bytes = pods.reduce((sum, pod) => sum + pod.length, 0);
  assert.ok(bytes > 12_000_000, `the large list has only ${bytes} bytes`);
  assert.equal(pods.length, watched, 'pods listed and watched');
  assert.ok(decode(pods.at(-1)).metadata.uid, 'the last pod of the large list is damaged');
}

async function main() {
  const { values } = parseArgs({
    options: {
      proto: { type: 'string' },
      socket: { type: 'string' },
      manifests: { type: 'string' },
      pods: { type: 'string' },
      'large-socket': { type: 'string' },
    },
  });
  const definition = loader.loadSync(['pods/v1alpha1/api.proto', 'pods/documented/api.proto'], {
    includeDirs: [values.proto],
    longs: String,
    enums: String,
  });
  const decode = definition['k8s.io.api.core.v1.Pod'].deserialize;
  const services = grpc.loadPackageDefinition(definition);
  console.log('ok stubs from proto/');

  const target = `unix:${values.socket}`;
  const manifest = new Manifest(values.manifests);
  const pods = new services.v1alpha1.Pods(target, grpc.credentials.createInsecure());
  const documented = new services.Pods(target, grpc.credentials.createInsecure());
  const listed = await checkListAndGet(pods, decode, Number(values.pods));
  console.log('ok list and get');
  await checkFieldMask(pods, decode, listed);
  console.log('ok field mask');
  await checkWatch(pods, decode, manifest, listed);
  console.log('ok watch');
  await checkDocumented(documented, decode, manifest, listed);
  console.log('ok documented contract');
  await checkDeadlineAndCancellation(pods, listed);
  console.log('ok deadline and cancellation');
  pods.close();
  documented.close();
  await checkKeepalive(services.v1alpha1.Pods, target);
  console.log('ok keepalive');
  await checkLarge(services.v1alpha1.Pods, `unix:${values['large-socket']}`, decode);
  console.log('ok large list');
}

main().catch((error) => {
  console.error(`FAILED: ${error.stack}`);
  process.exit(1);
});
