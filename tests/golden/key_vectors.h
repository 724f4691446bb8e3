/* Made by tests/golden/key_vectors.py: do not edit. */
#ifndef KVT_GOLDEN_KEY_VECTORS_H
#define KVT_GOLDEN_KEY_VECTORS_H

#include <stddef.h>
#include <stdint.h>

#define KEY_VECTOR_PAGES 3u

struct key_vector {
    size_t namespace_bytes;
    uint32_t page_tokens;
    size_t extra_bytes;
    const char *keys[KEY_VECTOR_PAGES + 1]; /* the namespace's, then the pages' */
};

static const struct key_vector key_vectors[] = {
    {1,
     16,
     0,
     {"22bbb76b211a39ba13e608bc156defed", "4a52f7f7e63ca71ebef8a7f540efade2",
      "decb2dbd726ac4a81c66dd1bde704035", "e68cecf5fd71ce9e7329970b5b0f8fd0"}},
    {17,
     16,
     0,
     {"bfd327edcc2fbd12eeed7654312a26d7", "bad17b1d0210d6be57d6c165fd0d4699",
      "55a4683f8f834c1bf49227bc6e62ad80", "389c59171973754923c20b7f17bf884c"}},
    {300,
     1,
     0,
     {"55dbf83207efb80dfd9aa0f0d62e0227", "eed4429800d63895adafa0bb0e0741e3",
      "d8d05551484243e4f04c2b82d2e922a8", "937f80f1d520c3606b1955f965073a10"}},
    {300,
     4,
     0,
     {"55dbf83207efb80dfd9aa0f0d62e0227", "792c36bb7b01396df5248e7cb9594668",
      "b0e0cdae7166656a2230019ce2ae097e", "45e34aa2e4341d47af59559110a456c3"}},
    {300,
     16,
     40,
     {"55dbf83207efb80dfd9aa0f0d62e0227", "2bf63f2b372d8d2b577768634906a59b",
      "d829dde440027d84116cb19b3e79cb9e", "d54fbf9fac8532e7c03b6a667dcefc45"}},
    {300,
     16,
     80,
     {"55dbf83207efb80dfd9aa0f0d62e0227", "7f09c5f29c8f7830d63f76302c0e2a36",
      "51b042d2b4266f1f21dc07812ec8acfc", "a7f11aca2b30d8445cc05e5fd5379c26"}},
    {64,
     63,
     0,
     {"fed953fe6a8b2b63aa549d72c69cd267", "6eac8ac60fdb7630e96744ba65d751fe",
      "6cde22e98ada0982ae44b8fc21e00f0b", "a2efefd87749e90d793de823ef2bcb46"}},
    {64,
     64,
     0,
     {"fed953fe6a8b2b63aa549d72c69cd267", "6fb5006291244ad310517258bfca09a9",
      "a48fccf9739909700ad5d8ef4aa8f8e7", "bc9c6330aa6042b560e4a54eb4948833"}},
    {64,
     65,
     0,
     {"fed953fe6a8b2b63aa549d72c69cd267", "6711df1374aca29f48126dccc6f75016",
      "981c06bf962d8e116536bbaa1f220cc9", "10a1e45d3bba74853fb1cf70f00ced90"}},
    {64,
     64,
     240,
     {"fed953fe6a8b2b63aa549d72c69cd267", "c3d8de8a1f8d5a689c31cd19742cf7e4",
      "1c660cdb5a15cf17710717d1aa40058a", "7bce2ad4fa692f1f874064945c4fe5bd"}},
    {64,
     64,
     256,
     {"fed953fe6a8b2b63aa549d72c69cd267", "4b748cd7ca604df2b0a4b41a467512f4",
      "787b9de5029ebe814db63e5ca4de4024", "fc3796f5c3a2150361c7872a226deb7a"}},
    {64,
     64,
     257,
     {"fed953fe6a8b2b63aa549d72c69cd267", "d223ca3f6c9886a2a01bce6f07b545a0",
      "0d89740cf83fe7ceba9a4e4c9696900f", "9d24c6db22972e1ac708d53ecec163f3"}},
    {64,
     65,
     40,
     {"fed953fe6a8b2b63aa549d72c69cd267", "e17dfef0d253b4d7bfb667cb9a6bb160",
      "19ac3381ea241f207eaf0011739201bf", "ef765bd2eae7c268d8770f0b8fbd3f20"}},
    {64,
     256,
     400,
     {"fed953fe6a8b2b63aa549d72c69cd267", "e24f8566566159b925194c55aacbca15",
      "e8576591fb167c75508eaefb7a688b44", "3920dec0528622f8ec0a92de895dcb43"}},
    {64,
     1024,
     0,
     {"fed953fe6a8b2b63aa549d72c69cd267", "7c37edfea5398cc6a23ae27eb6af0692",
      "1415694cf90a655fc036d0f418ce2ac2", "fa641c9ed4cda50d6029f01f8dfd10bf"}},
};

#endif
