/* Measure a clip in the browser, before it is sent: length, level, clipping, silence, waveform. */
"use strict";

(() => {
  const ttsweb = (window.ttsweb = window.ttsweb || {});
  const BARS = 400;
  const FULL_SCALE = 0.999;
  const QUIET = 10 ** (-50 / 20);
  const WINDOW_SECONDS = 0.02;

  const toDecibel = (level) => (level > 0 ? Math.max(-120, 20 * Math.log10(level)) : -120);

  /* Return the mean of all channels, as the worker makes it. */
  const toMono = (buffer) => {
    const mono = new Float32Array(buffer.length);
    for (let channel = 0; channel < buffer.numberOfChannels; channel += 1) {
      const samples = buffer.getChannelData(channel);
      for (let i = 0; i < samples.length; i += 1) mono[i] += samples[i] / buffer.numberOfChannels;
    }
    return mono;
  };

  ttsweb.measureClip = async (file) => {
    const context = new OfflineAudioContext(1, 1, 48000);
    const buffer = await context.decodeAudioData(await file.arrayBuffer());
    const mono = toMono(buffer);
    const window_ = Math.max(1, Math.round(WINDOW_SECONDS * buffer.sampleRate));
    const peaks = new Array(Math.min(BARS, mono.length)).fill(0);
    let peak = 0;
    let power = 0;
    let clipped = 0;
    let quiet = 0;
    let windows = 0;
    let inWindow = 0;
    for (let i = 0; i < mono.length; i += 1) {
      const level = Math.abs(mono[i]);
      const bar = Math.floor((i * peaks.length) / mono.length);
      if (level > peaks[bar]) peaks[bar] = level;
      if (level > peak) peak = level;
      if (level >= FULL_SCALE) clipped += 1;
      power += level * level;
      inWindow += level * level;
      if ((i + 1) % window_ === 0) {
        windows += 1;
        if (Math.sqrt(inWindow / window_) < QUIET) quiet += 1;
        inWindow = 0;
      }
    }
    return {
      seconds: buffer.duration,
      channels: buffer.numberOfChannels,
      peak: toDecibel(peak),
      rms: toDecibel(Math.sqrt(power / Math.max(1, mono.length))),
      clippedShare: clipped / Math.max(1, mono.length),
      silenceShare: windows ? quiet / windows : 0,
      peaks: peaks.map((level) => Math.round(Math.min(1, level) * 255)),
    };
  };

  /* Return what is wrong or unwise about a clip: [isRefused, sentence]. */
  ttsweb.judgeClip = (found, limits) => {
    const remarks = [];
    const seconds = found.seconds.toFixed(1);
    if (found.seconds < limits.shortest) {
      remarks.push([true, `The clip is too short (${seconds} s): at least ${limits.shortest} s are needed.`]);
    } else if (found.seconds < 3) {
      remarks.push([false, `The clip is short (${seconds} s): with 3 s or more the voice is imitated better.`]);
    }
    if (found.seconds > limits.longest) {
      remarks.push([true, `The clip is too long (${seconds} s): at most ${limits.longest} s are allowed.`]);
    } else if (found.seconds > 30) {
      remarks.push([false, `The clip is long (${seconds} s): more than 30 s is seldom better, and slower.`]);
    }
    if (found.peak < -60) remarks.push([true, "The clip is silent."]);
    else if (found.rms < -40) remarks.push([false, "The clip is very quiet: speak closer to the microphone, or louder."]);
    if (found.clippedShare > 0.001) {
      remarks.push([false, "The clip was recorded too loud and is distorted: the voice will sound harsh."]);
    }
    if (found.silenceShare > 0.5) {
      remarks.push([false, `${Math.round(100 * found.silenceShare)} % of the clip is silence.`]);
    }
    return remarks;
  };
})();
